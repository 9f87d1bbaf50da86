//! The process's heap: what `malloc` and `GlobalAlloc` stand on.

use core::sync::atomic::Ordering::Relaxed;
use weir_linux::platform::statics::STATS;
use weir_linux::process::heap::HEAP;

/// Allocates `size` bytes aligned to 16; null when memory is refused. `size` 0 gives a block of its own.
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    HEAP.alloc(size)
}

/// [`alloc`] once its fast path has failed; null when memory is refused.
#[cold]
pub fn alloc_slow(size: usize) -> *mut u8 {
    HEAP.alloc_slow(size)
}

/// Allocates `size` zero bytes.
#[inline]
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    HEAP.alloc_zeroed(size)
}

/// Allocates `size` bytes aligned to `align`, a power of two.
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    HEAP.alloc_aligned(align, size)
}

/// Allocates whole pages below 4 GiB; null when there are none left.
pub fn alloc_low32(size: usize) -> *mut u8 {
    HEAP.alloc_low32(size)
}

/// Frees a block; null is allowed.
///
/// # Safety
/// The block was allocated here and nobody uses it any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { HEAP.free(block) }
}

/// Frees a block of known size (as it was asked for, at an alignment of at most 16).
///
/// # Safety
/// As [`free`]; the size is that which the block was allocated with, or another of the same size class, and the block
/// has not been through [`realloc`], which leaves a block where it is although a smaller class would do.
#[inline(always)]
pub unsafe fn free_sized(block: *mut u8, size: usize) {
    // SAFETY: as the caller promises.
    unsafe { HEAP.free_sized(block, size) }
}

/// Resizes a block; null when memory is refused (the block is then as it was).
///
/// # Safety
/// The block was allocated here and not freed; `size` is not 0.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { HEAP.realloc(block, size) }
}

/// Bytes that a block can hold; 0 for null.
///
/// # Safety
/// The block is null, or was allocated here and not freed.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    // SAFETY: as the caller promises.
    unsafe { HEAP.usable_size(block) }
}

/// Gives everything idle back to the system now; whether anything went.
pub fn trim() -> bool {
    HEAP.trim() > 0
}

/// What the heap holds, in bytes (and blocks mapped on their own, a count).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pages handed out to slabs and large runs.
    pub used_bytes: usize,
    /// Free pages that are still resident.
    pub idle_bytes: usize,
    /// Blocks mapped on their own.
    pub mapped_bytes: usize,
    /// Address space that the zones have grown to.
    pub heap_bytes: usize,
    /// Metadata mapped.
    pub metadata_bytes: usize,
    /// Blocks mapped on their own.
    pub mapped_count: usize,
}

/// What the heap holds now.
pub fn usage() -> Usage {
    HEAP.publish();
    let read = |counter: &core::sync::atomic::AtomicU64| counter.load(Relaxed) as usize;
    Usage {
        used_bytes: read(&STATS.used_bytes),
        idle_bytes: read(&STATS.idle_bytes),
        mapped_bytes: read(&STATS.mapped_bytes),
        heap_bytes: read(&STATS.heap_bytes),
        metadata_bytes: read(&STATS.metadata_bytes),
        mapped_count: HEAP.mapped_count(),
    }
}
