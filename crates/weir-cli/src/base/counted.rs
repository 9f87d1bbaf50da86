//! The system's memory, counted: what a thread of this command took, less what it freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// It may fall below zero: a thread may free what another took.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// See the module.
pub struct Counted;

/// Bytes that this thread took, less those that it freed.
pub fn held() -> isize {
    HELD.get()
}

// SAFETY: all is done by the system's allocator. Counting takes no memory: the count needs no destructor.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        count(layout.size(), unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        count(layout.size(), unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub_unsigned(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let moved = count(size, unsafe { System.realloc(block, layout, size) });
        if !moved.is_null() {
            HELD.set(HELD.get().wrapping_sub_unsigned(layout.size()));
        }
        moved
    }
}

fn count(size: usize, block: *mut u8) -> *mut u8 {
    if !block.is_null() {
        HELD.set(HELD.get().wrapping_add_unsigned(size));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::held;

    #[test]
    fn what_is_taken_is_counted_until_it_is_freed() {
        let before = held();
        let mut block: Vec<u8> = Vec::with_capacity(1000);
        assert_eq!(held(), before + 1000);
        block.reserve_exact(3000);
        assert_eq!(held(), before + 3000);
        let zeros = vec![0u64; 100];
        assert_eq!(held(), before + 3800);
        drop((block, zeros));
        assert_eq!(held(), before);
    }
}
