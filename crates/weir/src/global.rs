//! Weir as a Rust program's global allocator.

use core::alloc::{GlobalAlloc, Layout};
use weir_core::base::size_class::{MAX_SIZE, MIN_ALIGN, class_aligned};
use weir_core::base::units::PAGE;
use weir_linux::process::heap::HEAP;

use crate::heap;

/// The process's heap as `#[global_allocator]`.
///
/// Frees pass the size, so small ones need not look it up. The heap profile (setting `profile_bytes`) samples the programs of
/// `libweir.so` alone, since a sample is no block of its size's class. Where `libweir.so` is preloaded as well, the program's
/// Rust part and its C part have a heap each; both release what is idle.
///
/// ```
/// #[global_allocator]
/// static HEAP: weir::Weir = weir::Weir;
///
/// let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
/// assert_eq!(words.concat().len(), 2890);
/// assert!(weir::heap::usage().live_bytes > 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Weir;

// SAFETY: blocks are as large and as aligned as asked for, distinct, and stay so until freed; nothing here unwinds.
unsafe impl GlobalAlloc for Weir {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN { heap::alloc(layout.size()) } else { HEAP.alloc_aligned(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller frees a block of this layout, which at this alignment is of its size's class.
        unsafe {
            if layout.align() <= MIN_ALIGN && layout.size() <= MAX_SIZE {
                heap::free_sized(block, layout.size());
            } else {
                heap::free(block);
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN {
            return heap::alloc_zeroed(layout.size());
        }
        HEAP.alloc_zeroed_aligned(layout)
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= MIN_ALIGN && size > 0 {
            // SAFETY: the caller's block; the heap keeps it where its class serves both sizes. A block that stays
            // in a class larger than its new size's must not be freed by size, so such a one is moved.
            return unsafe { realloc_by_size(block, layout, size) };
        }
        // SAFETY: the caller promises a size that such an alignment can have.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if let Some(class) = class_aligned(layout)
            && class_aligned(wanted) == Some(class)
        {
            return block;
        }
        if layout.align() <= PAGE && layout.size() > MAX_SIZE && size > MAX_SIZE {
            // SAFETY: the caller's block; one of more than a size class begins on a page, before and after.
            return unsafe { heap::realloc(block, size) };
        }
        // SAFETY: blocks are distinct.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// # Safety
/// `block` was allocated with `layout`, whose alignment is at most 16; `size` is not 0.
unsafe fn realloc_by_size(block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    use weir_core::base::size_class::class_of;
    let (small, stays_small) = (layout.size() <= MAX_SIZE, size <= MAX_SIZE);
    if small && stays_small && class_of(layout.size()) == class_of(size) {
        return block;
    }
    if !small && !stays_small {
        // SAFETY: the caller promises a block of this heap; it is larger than any size class, before and after.
        return unsafe { heap::realloc(block, size) };
    }
    let new = heap::alloc(size);
    if !new.is_null() {
        // SAFETY: both are valid for the shorter length and distinct; the old one is the caller's.
        unsafe {
            core::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
            if small { heap::free_sized(block, layout.size()) } else { heap::free(block) }
        }
    }
    new
}
