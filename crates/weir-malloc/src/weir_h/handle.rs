//! What C has a pointer to: a block of its own. Its first word says what it is, as long as it is there.

use crate::misuse::{WrongCall, misuse};
use core::mem::{ManuallyDrop, size_of};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weir::heap;

/// Memory for a value that C is to have, freed again where there comes to be none.
pub struct Home<T>(NonNull<T>);

impl<T> Home<T> {
    pub fn new() -> Option<Self> {
        NonNull::new(heap::alloc(size_of::<T>()).cast()).map(Self)
    }

    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Puts the value there, for C to have.
    pub fn fill(self, value: T) -> *mut T {
        let at = ManuallyDrop::new(self).as_ptr();
        // SAFETY: fresh, and of that size.
        unsafe { at.write(value) };
        at
    }
}

impl<T> Drop for Home<T> {
    fn drop(&mut self) {
        // SAFETY: `new` made the block, and nothing is in it.
        unsafe { heap::free(self.as_ptr().cast()) }
    }
}

/// What C names by a pointer to its [`Handle`].
pub trait Named: Sized {
    /// First word of the handle, while there is one.
    const KIND: usize;
    /// The bits of the word that are looked at.
    const LOOKED_AT: usize = usize::MAX;
    /// What a call with a pointer to something else is.
    const WRONG: WrongCall;
}

/// A `T` behind the word that says so.
#[repr(C)]
pub struct Handle<T> {
    /// [`Named::KIND`].
    kind: AtomicUsize,
    pub value: T,
}

impl<T: Named> Home<Handle<T>> {
    /// Puts a handle of the value there.
    pub fn hand_out(self, value: T) -> *mut Handle<T> {
        self.fill(Handle { kind: AtomicUsize::new(T::KIND), value })
    }
}

/// What is behind a pointer of the program's, where it is one to a handle of this kind.
///
/// # Safety
/// Null, or readable memory.
#[inline(always)]
pub unsafe fn named<'a, T: Named>(handle: *mut Handle<T>) -> Option<&'a T> {
    // SAFETY: the caller's promise; the first word of a handle that was given up is another.
    let found = unsafe { handle.as_ref() }?;
    if found.kind.load(Relaxed) & T::LOOKED_AT != T::KIND & T::LOOKED_AT {
        misuse(T::WRONG, handle.addr());
        return None;
    }
    Some(&found.value)
}

/// Takes the value out of a handle that stays there until [`retire`]. `None`, and misuse: it is taken already. For a kind of which
/// the lowest bit is 0 and is not looked at.
///
/// # Safety
/// From [`Home::hand_out`], and given up by the program.
pub unsafe fn take<T: Named>(handle: *mut Handle<T>) -> Option<T> {
    const { assert!(T::KIND & 1 == 0 && T::LOOKED_AT & 1 == 0) };
    // SAFETY: the caller's promise.
    let kind = unsafe { &(*handle).kind };
    if kind.fetch_or(1, Relaxed) & 1 != 0 {
        misuse(T::WRONG, handle.addr());
        return None;
    }
    // SAFETY: the caller's promise, and the first to come.
    Some(unsafe { (&raw const (*handle).value).read() })
}

/// Ends a handle, and returns what was in it.
///
/// # Safety
/// From [`Home::hand_out`], and given up by the program; nothing else refers to it.
pub unsafe fn retire<T: Named>(handle: *mut Handle<T>) -> T {
    // SAFETY: the caller's promise; the value is taken out once.
    unsafe {
        let value = (&raw const (*handle).value).read();
        give_back(handle);
        value
    }
}

/// Ends a handle by which the program's functions may use the value until it is gone: it is dropped in its place.
///
/// # Safety
/// From [`Home::hand_out`], and given up by the program; only what the drop calls refers to it.
pub unsafe fn end<T: Named>(handle: *mut Handle<T>) {
    // SAFETY: the caller's promise; the value is dropped once.
    unsafe {
        (&raw mut (*handle).value).drop_in_place();
        give_back(handle);
    }
}

/// # Safety
/// From [`Home::hand_out`]; the value is gone, and nothing refers to the handle.
unsafe fn give_back<T>(handle: *mut Handle<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        // Volatile, as nothing reads it before the block is freed, and `named` of the same pointer after.
        (*handle).kind.as_ptr().write_volatile(0);
        heap::free(handle.cast());
    }
}
