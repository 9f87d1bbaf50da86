//! A closure of the program's in a block of Weir's own heap.

use core::alloc::Layout;
use core::ops::Deref;
use core::ptr::NonNull;

use super::host;

/// The layout of a closure's block: one without captures has a block, too.
fn layout_of(closure: Layout) -> Layout {
    let align = closure.align();
    if closure.size() == 0 { Layout::from_size_align(align, align).unwrap_or(closure) } else { closure }
}

/// Owns one; `T` is a trait object.
pub struct Closure<T: ?Sized>(NonNull<T>);

// SAFETY: it owns the closure, which may be sent.
unsafe impl<T: ?Sized + Send> Send for Closure<T> {}
// SAFETY: a shared reference gives shared references to the closure, which may be shared.
unsafe impl<T: ?Sized + Sync> Sync for Closure<T> {}

impl<T: ?Sized> Closure<T> {
    /// Moves `f` to the heap; `as_object` only makes a trait object of the pointer. `None`: there is no memory.
    pub fn new<F>(f: F, as_object: fn(*mut F) -> *mut T) -> Option<Self> {
        let block = host::alloc(layout_of(Layout::new::<F>()))?.cast::<F>();
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
        struct Block(NonNull<u8>, Layout);
        impl Drop for Block {
            fn drop(&mut self) {
                // SAFETY: `new` allocated it, and the closure in it is dropped.
                unsafe { host::free(self.0, self.1) }
            }
        }
        let _block = Block(self.0.cast(), layout_of(Layout::for_value(&**self)));
        // SAFETY: this owns the closure, which is not used afterwards.
        unsafe { self.0.drop_in_place() }
    }
}
