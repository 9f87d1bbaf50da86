//! The calls of `malloc` beyond the engine's own: guarded blocks, and what the heap profile counts.
//!
//! The calls that begin with `counted_` are for a library that is a whole program's malloc. The heap profile counts each
//! allocation, and one in `guard_every` is guarded. A sampled block is a run of pages whatever its size, so none of them may be
//! freed by its size. A Rust program's global allocator does that: it makes the plain calls, and is not profiled. Nor are objects
//! of caches, pages of pools and zones, and blocks below 4 GiB. While both are off a counted call costs one load and one branch
//! more than the plain one.
//!
//! Only the fast paths are compiled where they are called.

use core::alloc::Layout;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::base::size_class::{MAX_SIZE, layout_of};
use weir_core::heap::FreeLeft;
use weir_core::profile::recorder::Origin;

use crate::platform::fast_path::rseq::{self, SAMPLED_SIZES};
use crate::process::heap::HEAP;
use crate::profile::countdown;
use crate::profile::guard::{blocks, choice, slots};
use crate::profile::stack::{ROOM, call_stack};

/// Allocates `size` bytes, aligned to 16; null when memory is refused.
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    let block = HEAP.alloc_fast(size);
    if block.is_null() { alloc_slow(size) } else { block }
}

#[cold]
fn alloc_slow(size: usize) -> *mut u8 {
    HEAP.alloc_slow(size)
}

/// Frees a block; null is allowed.
///
/// # Safety
/// The block is not used any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: the caller gives the block up.
    if let Err(left) = unsafe { HEAP.free_fast(block) } {
        free_slow(block, left);
    }
}

/// Frees a block of known size, without a look at what it is.
///
/// # Safety
/// The block is not used any more, and was allocated with this size or one of the same class.
#[inline(always)]
pub unsafe fn free_sized(block: *mut u8, size: usize) {
    if size > MAX_SIZE || block.is_null() {
        // SAFETY: the caller gives the block up.
        return unsafe { free(block) };
    }
    // SAFETY: the size was checked; that it is the block's the caller promises.
    if let Err(left) = unsafe { HEAP.free_sized_fast(block, size) } {
        free_slow(block, left);
    }
}

#[cold]
fn free_slow(block: *mut u8, left: FreeLeft) {
    if slots::owns(block.addr()) {
        return blocks::free(block.addr());
    }
    HEAP.free_slow(block, left);
}

/// Resizes a block; null when memory is refused.
///
/// # Safety
/// The block was allocated here and not freed; `size` is not 0.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if slots::owns(block.addr()) {
        // SAFETY: the caller owns the block.
        return unsafe { realloc_guarded(block, size, || HEAP.alloc(size)) };
    }
    // SAFETY: the caller owns the block.
    unsafe { HEAP.realloc(block, size) }
}

/// Puts a block of `size` bytes that `alloc` gives in the place of a guarded one. Null if it gives none, or the pointer was
/// wrong.
///
/// # Safety
/// The caller owns the block.
#[cold]
unsafe fn realloc_guarded(block: *mut u8, size: usize, alloc: impl FnOnce() -> *mut u8) -> *mut u8 {
    let Some(old) = blocks::size_of(block.addr()) else { return null_mut() };
    let new = alloc();
    if !new.is_null() {
        // SAFETY: the old block holds `old` bytes, and the new one `size`; they are distinct, as both are allocated.
        unsafe { core::ptr::copy_nonoverlapping(block, new, old.min(size)) };
        blocks::free(block.addr());
    }
    new
}

/// Bytes that a block can hold; 0 for null.
///
/// # Safety
/// The block is null, or was allocated here and not freed.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    if slots::owns(block.addr()) {
        return blocks::size_of(block.addr()).unwrap_or(0);
    }
    // SAFETY: the caller owns the block.
    unsafe { HEAP.usable_size(block) }
}

/// Frees a block that was copied elsewhere so that its page becomes free ([`Heap::free_moved`](weir_core::heap::Heap::free_moved)).
///
/// # Safety
/// The block is null or was allocated here, and is not used any more.
pub unsafe fn free_moved(block: *mut u8) {
    // SAFETY: the caller gives the block up; what is no object of a size class is freed as ever.
    unsafe {
        if !HEAP.free_moved(block) {
            free(block);
        }
    }
}

/// Whether `addr` is where guarded blocks lie.
pub fn is_guarded(addr: usize) -> bool {
    slots::owns(addr)
}

/// Whether a block of this heap begins at `addr`.
pub fn is_block(addr: usize) -> bool {
    slots::owns(addr) || HEAP.is_block(addr)
}

/// Whether sampling or guarding is on.
#[inline(always)]
fn is_watched() -> bool {
    rseq::is_watched()
}

/// Allocates what a fast path written by hand did not: it has counted the size, if it was to.
#[cold]
pub fn counted_alloc_slow(size: usize) -> *mut u8 {
    if !is_watched() {
        return HEAP.alloc_slow(size);
    }
    let block = sampled(layout_of(size), false, size < SAMPLED_SIZES.load(Relaxed));
    // The bucket may well have an object: the fast path went past it because of the count.
    if block.is_null() { HEAP.alloc(size) } else { block }
}

/// [`alloc`], counted.
#[inline(always)]
pub fn counted_alloc(size: usize) -> *mut u8 {
    if is_watched() { alloc_watched(size) } else { alloc(size) }
}

#[cold]
fn alloc_watched(size: usize) -> *mut u8 {
    let block = sampled(layout_of(size), false, false);
    if block.is_null() { HEAP.alloc(size) } else { block }
}

/// [`counted_alloc`], of zeros.
pub fn counted_alloc_zeroed(size: usize) -> *mut u8 {
    if is_watched() {
        let block = sampled(layout_of(size), true, false);
        if !block.is_null() {
            return block;
        }
    }
    HEAP.alloc_zeroed(size)
}

/// [`counted_alloc`] of what `layout` asks for.
pub fn counted_alloc_aligned(layout: Layout) -> *mut u8 {
    if is_watched() {
        let block = sampled(Some(layout), false, false);
        if !block.is_null() {
            return block;
        }
    }
    HEAP.alloc_aligned(layout)
}

/// Whether a resize to `size` bytes leaves the block as it is, and nothing has to be counted.
#[inline(always)]
pub fn stays(block: *mut u8, size: usize) -> bool {
    !is_watched() && HEAP.stays(block, size)
}

/// [`realloc`], counted as a free of the old block and an allocation of the new one, also where the block stays in its place. So
/// the live bytes of each stack stay an unbiased estimate.
///
/// # Safety
/// The block was allocated here and not freed; `size` is not 0.
pub unsafe fn counted_realloc(block: *mut u8, size: usize) -> *mut u8 {
    if slots::owns(block.addr()) {
        // SAFETY: the caller owns the block.
        return unsafe { realloc_guarded(block, size, || counted_alloc(size)) };
    }
    if is_watched() {
        // SAFETY: the caller owns the block.
        let new = unsafe { realloc_sampled(block, size) };
        if !new.is_null() {
            return new;
        }
    }
    // SAFETY: the caller owns the block.
    unsafe { HEAP.realloc(block, size) }
}

/// A sampled or a guarded block; null if this allocation is neither, or there is no memory for that.
#[cold]
fn sampled(layout: Option<Layout>, is_zeroed: bool, is_counted: bool) -> *mut u8 {
    let Some(layout) = layout else { return null_mut() };
    let Some(drawn) = countdown::sample(layout.size(), is_counted) else { return guarded(layout) };
    let mut words = [0; ROOM];
    let origin = Origin { frames: call_stack(&mut words), mean: drawn.mean, random: drawn.random };
    HEAP.samples().alloc(layout, is_zeroed, origin)
}

/// A guarded block, all 0; null if this allocation is not guarded, or no page is free for it.
fn guarded(layout: Layout) -> *mut u8 {
    if choice::is_chosen(layout) { blocks::alloc(layout).unwrap_or(null_mut()) } else { null_mut() }
}

/// A sampled block in the place of another; null if it is not sampled, or there is no memory for that.
///
/// # Safety
/// As for [`counted_realloc`].
#[cold]
unsafe fn realloc_sampled(block: *mut u8, size: usize) -> *mut u8 {
    let Some(drawn) = countdown::sample(size, false) else { return null_mut() };
    let mut words = [0; ROOM];
    let origin = Origin { frames: call_stack(&mut words), mean: drawn.mean, random: drawn.random };
    // SAFETY: the caller owns the block.
    unsafe { HEAP.samples().realloc(block, size, origin) }
}
