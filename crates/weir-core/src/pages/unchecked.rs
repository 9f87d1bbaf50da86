//! The class map of a window that has no heap around it, by page number: for this crate's tests.

use super::window::Window;

/// The class-map entry of a page.
///
/// # Safety
/// The page is below the window's top.
pub unsafe fn class_of(window: &Window, page: u32) -> u8 {
    window.class_of(page)
}

/// Sets the class-map entries of `pages` pages from `first`.
///
/// # Safety
/// They are below the window's top, and handed out to the caller.
pub unsafe fn set_class(window: &Window, first: u32, pages: usize, class: u8) {
    window.set_class(first, pages, class);
}

/// Clears the mark of a run; whether it was there.
///
/// # Safety
/// The page is below the window's top.
pub unsafe fn unmark_run(window: &Window, page: u32, mark: u8) -> bool {
    window.unmark_run(page, mark)
}
