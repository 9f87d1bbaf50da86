//! The class map of a window that has no heap around it, by page number: for this crate's tests.

use crate::base::units::{Class, PageNo, Span};
use crate::pages::window::Window;

/// The class-map entry of a page.
///
/// # Safety
/// The page is below the window's top.
pub unsafe fn class_of(window: &Window, page: PageNo) -> Class {
    window.class_of(page)
}

/// Sets the class-map entries of `pages`.
///
/// # Safety
/// They are below the window's top, and handed out to the caller.
pub unsafe fn set_class(window: &Window, pages: Span, class: Class) {
    window.set_class(pages, class);
}

/// Clears the mark of a run; whether it was there.
///
/// # Safety
/// The page is below the window's top.
pub unsafe fn unmark_run(window: &Window, page: PageNo, mark: Class) -> bool {
    window.unmark_run(page, mark)
}
