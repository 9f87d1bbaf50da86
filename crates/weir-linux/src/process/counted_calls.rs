//! [`super::calls`] for a library that is a whole program's malloc: the same, the heap profile counts each allocation, and
//! one in `guard_every` is guarded.
//!
//! A sampled block is a run of pages whatever its size, so none of them may be freed by its size: a Rust program's global
//! allocator, which does that, makes the plain calls, and is not profiled. Nor are objects of caches, pages of pools and zones,
//! and blocks below 4 GiB.
//!
//! While both are off each function costs one load and one branch more than the plain call.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::base::size_class::MIN_ALIGN;
use weir_core::profile::recorder::Origin;

use super::heap::HEAP;
use crate::platform::rseq::{self, SAMPLED_SIZES};
use crate::profile::countdown;
use crate::profile::guard::{blocks, choice, slots};
use crate::profile::stack::CallStack;

/// Whether sampling or guarding is on.
#[inline(always)]
fn is_on() -> bool {
    rseq::is_watched()
}

/// Allocates what a fast path written by hand did not: it has counted the size, if it was to.
#[cold]
pub fn alloc_slow(size: usize) -> *mut u8 {
    if !is_on() {
        return HEAP.alloc_slow(size);
    }
    let block = sampled(size, MIN_ALIGN, false, size < SAMPLED_SIZES.load(Relaxed));
    // The bucket may well have an object: the fast path went past it because of the count.
    if block.is_null() { HEAP.alloc(size) } else { block }
}

/// [`super::calls::alloc`].
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    if is_on() { alloc_counted(size) } else { super::calls::alloc(size) }
}

#[cold]
fn alloc_counted(size: usize) -> *mut u8 {
    let block = sampled(size, MIN_ALIGN, false, false);
    if block.is_null() { HEAP.alloc(size) } else { block }
}

/// [`super::calls::alloc_zeroed`].
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    if is_on() {
        let block = sampled(size, MIN_ALIGN, true, false);
        if !block.is_null() {
            return block;
        }
    }
    HEAP.alloc_zeroed(size)
}

/// [`super::calls::alloc_aligned`]; null also where `align` is not a power of two.
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        return null_mut();
    }
    if is_on() {
        let block = sampled(size, align, false, false);
        if !block.is_null() {
            return block;
        }
    }
    HEAP.alloc_aligned(align, size)
}

/// Whether a resize to `size` bytes leaves the block as it is, and nothing has to be counted.
#[inline(always)]
pub fn stays(block: *mut u8, size: usize) -> bool {
    !is_on() && HEAP.stays(block, size)
}

/// [`super::calls::realloc`]. It counts as a free of the old block and an allocation of the new one, also where the block stays
/// in its place: so what is live of each stack stays an unbiased estimate.
///
/// # Safety
/// The block was allocated here and not freed; `size` is not 0.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if slots::owns(block.addr()) {
        // SAFETY: the caller owns the block.
        return unsafe { super::calls::realloc_guarded(block, size, || alloc(size)) };
    }
    if is_on() {
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
fn sampled(size: usize, align: usize, is_zeroed: bool, is_counted: bool) -> *mut u8 {
    let Some(drawn) = countdown::sample(size, is_counted) else { return guarded(size, align) };
    let stack = CallStack::here();
    HEAP.samples().alloc(
        size,
        align,
        is_zeroed,
        Origin { frames: stack.frames(), mean: drawn.mean, random: drawn.random },
    )
}

/// A guarded block, all 0; null if this allocation is not guarded, or no page is free for it.
fn guarded(size: usize, align: usize) -> *mut u8 {
    if choice::is_chosen(size, align) { blocks::alloc(size, align).unwrap_or(null_mut()) } else { null_mut() }
}

/// A sampled block in the place of another; null if it is not sampled, or there is no memory for that.
///
/// # Safety
/// As for [`realloc`].
#[cold]
unsafe fn realloc_sampled(block: *mut u8, size: usize) -> *mut u8 {
    let Some(drawn) = countdown::sample(size, false) else { return null_mut() };
    let stack = CallStack::here();
    let origin = Origin { frames: stack.frames(), mean: drawn.mean, random: drawn.random };
    // SAFETY: the caller owns the block.
    unsafe { HEAP.samples().realloc(block, size, origin) }
}
