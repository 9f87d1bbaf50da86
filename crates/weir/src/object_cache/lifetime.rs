//! When the values of a cache are made and dropped.

use core::ptr::NonNull;

/// Functions that are called at each use of a cache's objects, for one type of closures and objects.
pub struct UseHooks {
    pub(super) on_alloc: unsafe fn(NonNull<u8>, *mut u8),
    pub(super) on_free: unsafe fn(NonNull<u8>, *mut u8),
    /// Drops the closures and frees their block.
    pub(super) drop: unsafe fn(NonNull<u8>),
}

/// How long a value in a cache lives: [`PerUse`] or [`Retained`].
pub trait ValueLifetime<T>: EndUse<T> + Sized {}

/// A value is moved in by each allocation and dropped at each free.
#[derive(Debug)]
pub enum PerUse {}

/// A value is made once, when its memory comes, and retained while it is free.
#[derive(Debug)]
pub enum Retained {}

impl<T> ValueLifetime<T> for PerUse {}
impl<T> ValueLifetime<T> for Retained {}

/// The end of a value's use, for each lifetime. The name does not leave this crate, so that the two lifetimes stay the only ones.
pub trait EndUse<T> {
    /// Ends a use of `object`, before it is freed.
    ///
    /// # Safety
    /// The object is valid, of the cache that `hooks` and `closures` are of, and the caller's alone.
    unsafe fn end_use(hooks: &UseHooks, closures: NonNull<u8>, object: NonNull<T>);
}

impl<T> EndUse<T> for PerUse {
    #[inline]
    unsafe fn end_use(_: &UseHooks, _: NonNull<u8>, object: NonNull<T>) {
        // SAFETY: the caller promises a valid object that nothing else refers to.
        unsafe { object.drop_in_place() }
    }
}

impl<T> EndUse<T> for Retained {
    #[inline]
    unsafe fn end_use(hooks: &UseHooks, closures: NonNull<u8>, object: NonNull<T>) {
        // SAFETY: the hooks were made for these closures and this type, as the caller promises.
        unsafe { (hooks.on_free)(closures, object.as_ptr().cast()) }
    }
}
