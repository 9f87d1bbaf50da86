//! A closure of the program's in a block of Weir's own heap.

use core::ops::Deref;
use core::ptr::NonNull;

use crate::heap;

/// Owns one; `T` is a trait object.
pub struct Closure<T: ?Sized>(NonNull<T>);

// SAFETY: it owns the closure, which may be sent.
unsafe impl<T: ?Sized + Send> Send for Closure<T> {}
// SAFETY: a shared reference gives shared references to the closure, which may be shared.
unsafe impl<T: ?Sized + Sync> Sync for Closure<T> {}

impl<T: ?Sized> Closure<T> {
    /// Moves `f` to the heap; `as_object` only makes a trait object of the pointer. `None`: there is no memory.
    pub fn new<F>(f: F, as_object: fn(*mut F) -> *mut T) -> Option<Self> {
        let block = NonNull::new(heap::alloc_aligned(align_of::<F>().max(16), size_of::<F>().max(1)))?.cast::<F>();
        // SAFETY: fresh, and of that layout.
        unsafe { block.write(f) };
        NonNull::new(as_object(block.as_ptr())).map(Self)
    }
}

impl<T: ?Sized> Deref for Closure<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the closure lives in its block until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Drop for Closure<T> {
    fn drop(&mut self) {
        /// Frees the block also where the drop panics.
        struct Block(*mut u8);
        impl Drop for Block {
            fn drop(&mut self) {
                // SAFETY: `new` allocated it, and the closure in it is dropped.
                unsafe { heap::free(self.0) }
            }
        }
        let _block = Block(self.0.as_ptr().cast());
        // SAFETY: this owns the closure, which is not used afterwards.
        unsafe { self.0.drop_in_place() }
    }
}
