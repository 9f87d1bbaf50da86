//! The first `malloc` of the process, where that is another than this library's.
//!
//! A program may have a `malloc` of its own, as one that links jemalloc statically, and no `operator new`. Its C++ runtime's `new`
//! would call that `malloc`, and the program counts on it: it asks its own `malloc_usable_size` of such blocks. So the operators
//! here do what the runtime's would.
//!
//! What stands before this library's `malloc` may also be a wrapper, which calls it. It may be the stub of a program at a fixed
//! address. Then the operators allocate here, as in a program without. A wrapper is known by its calls, which come here. As long as
//! there was none, no size takes a fast path: the first `new` has to find out.

use crate::arch::jump::first_in_process;
use core::alloc::Layout;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use weir_core::base::size_class::MIN_ALIGN;
use weir_core::base::units::PAGE;
use weir_linux::platform::fast_path::rseq;
use weir_linux::process::heap::HEAP;
use weir_linux::process::malloc::{is_block, is_guarded};

/// Who serves the first `malloc`.
static WHOSE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const WEIRS: u8 = 1;
const ANOTHERS: u8 = 2;

unsafe extern "C" {
    /// This library's `malloc`, whatever else has the name (`names`).
    fn weir_ours_malloc();
}

/// To be called once, before the heap is used.
pub fn look() {
    if is_here() {
        WHOSE.store(WEIRS, Relaxed);
    } else if WHOSE.load(Relaxed) == UNKNOWN {
        rseq::set_unused(true);
    }
}

fn is_here() -> bool {
    first_in_process!(malloc) == weir_ours_malloc as *const ()
}

/// This library's `malloc` was called: so the first one is it, or calls it.
#[inline]
pub fn malloc_is_called() {
    if WHOSE.load(Relaxed) == UNKNOWN {
        note(WEIRS);
    }
}

#[cold]
fn note(whose: u8) {
    if WHOSE.compare_exchange(UNKNOWN, whose, Relaxed, Relaxed).is_ok() && whose == WEIRS {
        rseq::set_unused(false);
    }
}

/// Whether `operator new` is to call the first `malloc`.
#[inline]
pub fn is_anothers() -> bool {
    WHOSE.load(Relaxed) != WEIRS && find_out()
}

/// Allocates a block once, and looks where it is from.
#[cold]
fn find_out() -> bool {
    if WHOSE.load(Relaxed) == UNKNOWN {
        let block = if is_here() { null_mut() } else { alloc(Layout::new::<u8>()) };
        if is_here() || HEAP.covers(block.addr()) || is_block(block.addr()) {
            note(WEIRS);
        } else if !block.is_null() {
            note(ANOTHERS);
        }
        // SAFETY: null, or allocated just now.
        unsafe { free(block) };
    }
    WHOSE.load(Relaxed) != WEIRS
}

/// A block of the first `malloc`, or of the first `aligned_alloc`.
pub fn alloc(layout: Layout) -> *mut u8 {
    let (size, align) = (layout.size().max(1), layout.align());
    if align <= MIN_ALIGN {
        let first = first_in_process!(malloc);
        // SAFETY: what goes by this name in a process has this type.
        let malloc = unsafe { transmute::<*const (), extern "C" fn(usize) -> *mut u8>(first) };
        return malloc(size);
    }
    let first = first_in_process!(aligned_alloc);
    // SAFETY: what goes by this name in a process has this type.
    let aligned_alloc = unsafe { transmute::<*const (), extern "C" fn(usize, usize) -> *mut u8>(first) };
    // Before C17 it had to be a multiple.
    aligned_alloc(align, size.next_multiple_of(align))
}

/// Frees a block by the first `free`.
///
/// # Safety
/// Null, or a block of the first `malloc`, that is not used any more.
pub unsafe fn free(block: *mut u8) {
    let first = first_in_process!(free);
    // SAFETY: what goes by this name in a process has this type.
    let free = unsafe { transmute::<*const (), unsafe extern "C" fn(*mut u8)>(first) };
    // SAFETY: the caller's promise.
    unsafe { free(block) }
}

/// Whether a block that is deleted is the first `free`'s.
#[inline]
pub fn frees(block: *mut u8) -> bool {
    if WHOSE.load(Relaxed) == WEIRS {
        return false;
    }
    let addr = block.addr();
    // Outside the heap's pages Weir's blocks begin at a page, but for guarded ones. To look them up takes a lock.
    let may_be_weirs = HEAP.covers(addr) || addr.is_multiple_of(PAGE) || is_guarded(addr);
    !may_be_weirs || !is_block(addr)
}
