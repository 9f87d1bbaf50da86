//! The system's memory, counted: how much all threads have held at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

pub struct Counted;

/// Bytes held now, from which the most is counted.
pub fn begin() -> usize {
    let now = HELD.load(Relaxed);
    MOST.store(now, Relaxed);
    now
}

/// The most bytes that were held since.
pub fn most() -> usize {
    MOST.load(Relaxed)
}

fn count(block: *mut u8, bytes: usize) -> *mut u8 {
    if !block.is_null() {
        MOST.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    }
    block
}

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        count(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        count(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) };
    }
}
