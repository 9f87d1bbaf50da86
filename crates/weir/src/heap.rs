//! The heap that the process's allocations come from, by plain functions. They are for code that needs more than
//! [`GlobalAlloc`](core::alloc::GlobalAlloc) says, such as usable sizes, memory below 4 GiB, or a trim. They work whether or not
//! [`Weir`](crate::Weir) is the global allocator.
//!
//! ```
//! use weir::heap;
//!
//! // SAFETY: the block is used within its size, resized and freed once.
//! unsafe {
//!     let mut block = heap::alloc(100);
//!     assert!(!block.is_null() && heap::usable_size(block) >= 100);
//!     block.write_bytes(7, 100);
//!     block = heap::realloc(block, 100_000);
//!     assert_eq!(block.add(99).read(), 7);
//!     heap::free(block);
//! }
//! // Free memory is released within about a second by itself; a program that is about to be idle can do it now.
//! heap::trim();
//! ```

use core::alloc::Layout;
use weir_core::base::size_class::{MAX_SIZE, MIN_ALIGN, class_aligned, class_of, size_of};
use weir_core::base::units::PAGE;
use weir_core::telemetry::tunables::Tunables;
use weir_linux::platform::other_malloc;
use weir_linux::platform::statics::TUNABLES;
use weir_linux::process::heap::HEAP;
use weir_linux::process::malloc;

/// Allocates `size` bytes aligned to 16; null when memory is refused. `size` 0 gives a block of its own.
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    malloc::alloc(size)
}

/// [`alloc()`], where the whole usable size reads as zero.
#[inline]
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    HEAP.alloc_zeroed(size)
}

/// [`alloc()`], aligned to `align`; null also where that is not a power of two.
///
/// ```
/// let block = weir::heap::alloc_aligned(4096, 100);
/// assert!(!block.is_null() && block.addr() % 4096 == 0);
/// assert!(weir::heap::alloc_aligned(48, 100).is_null());
/// // SAFETY: allocated here, and not used any more.
/// unsafe { weir::heap::free(block) };
/// ```
#[inline]
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    Layout::from_size_align(size, align).map_or(core::ptr::null_mut(), |layout| HEAP.alloc_aligned(layout))
}

/// Allocates whole pages below 4 GiB, for compressed pointers and code generators: 4 MiB at a time at most. Null for more, and when
/// there are none left.
///
/// ```
/// let block = weir::heap::alloc_low32(64 << 10);
/// assert!(!block.is_null() && block.addr() < 1 << 32);
/// assert!(weir::heap::alloc_low32((4 << 20) + 1).is_null());
/// // SAFETY: allocated here, and not used any more.
/// unsafe { weir::heap::free(block) };
/// ```
pub fn alloc_low32(size: usize) -> *mut u8 {
    HEAP.alloc_low32(size)
}

/// Frees a block; null is allowed. A block that is free already, or a pointer that is no block, ends the process with a message
/// (setting `abort_on_misuse`). Not every such mistake is seen.
///
/// # Safety
/// The block was allocated here and nothing uses it any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: the caller promises a block of this heap that is not used any more, or null.
    unsafe { malloc::free(block) }
}

/// Frees a block of known size (as it was asked for, at an alignment of at most 16): cheaper than [`free`].
///
/// # Safety
/// As [`free`]. The size is that which the block was allocated with, or another of the same size class. The block has not been
/// through [`realloc`], which leaves a block where it is although a smaller class would do.
#[inline(always)]
pub unsafe fn free_sized(block: *mut u8, size: usize) {
    // SAFETY: the caller promises a block of this heap that is not used any more, and a size of its class.
    unsafe { malloc::free_sized(block, size) }
}

/// Resizes a block; null when memory is refused (the block is then as it was).
///
/// # Safety
/// The block was allocated here and not freed; `size` is not 0.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller promises a live block of this heap, and a size that is not 0.
    unsafe { malloc::realloc(block, size) }
}

/// Bytes that a block can hold; 0 for null.
///
/// # Safety
/// The block is null, or was allocated here and not freed.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    // SAFETY: the caller promises a live block of this heap, or null.
    unsafe { malloc::usable_size(block) }
}

/// Bytes of the block that [`alloc_aligned`] gives for a layout: those of its size class, or whole pages.
///
/// ```
/// use std::alloc::Layout;
/// use weir::heap;
///
/// let layout = Layout::array::<u8>(1000).unwrap();
/// let block = heap::alloc(1000);
/// // SAFETY: allocated here, and not used any more.
/// unsafe {
///     assert_eq!(heap::block_size(layout), heap::usable_size(block));
///     heap::free(block);
/// }
/// ```
pub fn block_size(layout: Layout) -> usize {
    let class = match layout.align() <= MIN_ALIGN {
        true => (layout.size() <= MAX_SIZE).then(|| class_of(layout.size())),
        false => class_aligned(layout),
    };
    class.map_or(layout.size().div_ceil(PAGE).saturating_mul(PAGE), size_of)
}

/// Bytes that a block of this layout takes of the program's global allocator; an empty one takes none. Where that is
/// [`Weir`](crate::Weir), the figure is what [`block_size`] says. Of another allocator it is taken as glibc's `malloc` has it: 8
/// bytes for itself, in steps of 16, and 32 at least.
pub fn program_block_size(layout: Layout) -> usize {
    note_program_allocator();
    match layout.size() {
        0 => 0,
        _ if other_malloc::is_weir() => block_size(layout),
        size => size.saturating_add(8).checked_next_multiple_of(16).unwrap_or(usize::MAX).max(32),
    }
}

/// Whether the block at `block` had better be copied elsewhere: its page would be free without a few. For programs that can
/// change all their references to a block, and so undo what a peak left of their memory.
///
/// The answer is `false` for a pointer to no block (of a freed one it means nothing), and for blocks of a page or more. It is
/// `false` as well while less than an eighth of what has memory is free in the blocks' size class. The answer changes with each
/// allocation and free. It costs a lock where the block's pages have free places, and a few loads elsewhere. A program that goes
/// over its blocks copies few of them twice, and comes to an end. The second or third time none should move, while it frees
/// nothing else.
///
/// ```
/// use weir::heap;
///
/// // SAFETY: blocks of 100 bytes, each used by this list alone and freed once.
/// unsafe {
///     let mut blocks: Vec<_> = (0..100_000).map(|_| heap::alloc(100)).collect();
///     let mut i = 0;
///     blocks.retain(|&block| {
///         i += 1;
///         if i % 16 != 0 {
///             heap::free(block);
///         }
///         i % 16 == 0
///     });
///     for block in blocks.iter_mut().filter(|block| heap::should_move(**block)) {
///         let new = heap::alloc_to_move(*block);
///         if !new.is_null() {
///             new.copy_from_nonoverlapping(*block, 100);
///             heap::free_moved(*block);
///             *block = new;
///         }
///     }
///     blocks.into_iter().for_each(|block| heap::free(block));
/// }
/// ```
pub fn should_move(block: *const u8) -> bool {
    HEAP.should_move(block)
}

/// Allocates the place that the block at `block` should be copied to: of the same usable size and alignment, on pages with more
/// blocks. `block` stays allocated. Null where it should stay where it is ([`should_move`]).
pub fn alloc_to_move(block: *const u8) -> *mut u8 {
    HEAP.alloc_to_move(block)
}

/// Frees a block that was copied elsewhere. [`free`] would do, but keep the place for the CPU's next allocation, which would lie
/// where few others are.
///
/// # Safety
/// As [`free`].
pub unsafe fn free_moved(block: *mut u8) {
    // SAFETY: the caller promises a block of this heap that is not used any more, or null.
    unsafe { malloc::free_moved(block) }
}

/// Releases everything idle now, whatever the pressure: caches down to nothing, free blocks, free pages. Returns
/// whether anything was released. `weir ctl PID drain` does it from outside.
///
/// Free values of [`ObjectCacheBuilder::retained`](crate::ObjectCacheBuilder::retained) may be dropped on the calling thread, which
/// must not hold what their drop waits for.
///
/// ```
/// drop(vec![1u8; 32 << 20]);
/// weir::heap::trim();
/// assert!(weir::heap::usage().idle_bytes < 32 << 20);
/// ```
pub fn trim() -> bool {
    HEAP.purge() > 0
}

/// The least gap between marks in a program on another allocator, in the unit of the setting `watermark_scale`. What is evicted
/// there goes back late: a program that took 24 MiB at once below a limit of 512 was killed in a fifth of all runs with 250, and
/// in none of 40 with 400 (`weir-lab run sudden`).
const SCALE_ON_OTHERS: u64 = 500;

/// Asks once whether what the program allocates comes from this heap. If not, what its caches evict goes to another allocator,
/// which has to be told to release it. The marks lie farther apart then, unless that was set.
pub(crate) fn note_program_allocator() {
    let is_other = other_malloc::note(|| {
        let layout = Layout::new::<u64>();
        // SAFETY: the layout is not empty.
        let block = unsafe { alloc::alloc::alloc(layout) };
        let is_ours = malloc::is_block(block.addr());
        if !block.is_null() {
            // SAFETY: allocated above, of this layout.
            unsafe { alloc::alloc::dealloc(block, layout) };
        }
        is_ours
    });
    let scale = &TUNABLES.watermark_scale;
    if is_other && scale.get() == Tunables::new().watermark_scale.get() {
        scale.set(SCALE_ON_OTHERS);
    }
}

/// Where the memory is, in bytes (and the number of blocks mapped on their own). The figures are gathered while other
/// threads go on: they are exact as long as nothing is allocated or freed.
///
/// Live, idle, fragmented, merged and metadata, less what is untouched, are what is resident of Weir ([`Usage::resident_bytes`]).
/// What is merged is resident, and is not charged. The rest of the process's resident set is not Weir's: code and data,
/// stacks, and other mappings. Memory of the program's own [zones](crate::zone) is not in it either;
/// [`Zone::usage`](crate::zone::Zone::usage) tells of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Blocks and objects that the program holds, at their usable sizes.
    pub live_bytes: usize,
    /// Free and resident, and can be released. That is free pages, free objects in CPUs' buckets and depots, and blocks kept for
    /// a while after they were freed.
    pub idle_bytes: usize,
    /// Free and resident, and cannot be released: objects in use are on the same pages.
    pub fragmented_bytes: usize,
    /// Free and resident beside objects in use, and without memory of its own: the kernel merged its page with others (setting
    /// `merge`).
    pub merged_bytes: usize,
    /// Weir's own state that is resident.
    pub metadata_bytes: usize,
    /// The part of what is live (or in a CPU's bucket) that is not resident: the program never touched it, or it was swapped out.
    pub untouched_bytes: usize,
    /// The part of what is live that is in blocks so large that each has a mapping of its own.
    pub mapped_bytes: usize,
    /// Blocks that have a mapping of their own, a count.
    pub mapped_count: usize,
    /// Address space that the heap has grown to, outside those mappings, resident or not.
    pub address_space_bytes: usize,
}

impl Usage {
    /// Bytes of Weir that are resident.
    pub fn resident_bytes(&self) -> usize {
        let free = self.idle_bytes + self.fragmented_bytes + self.merged_bytes;
        let parts = self.live_bytes + free + self.metadata_bytes;
        parts.saturating_sub(self.untouched_bytes)
    }
}

/// Where the memory is now. It takes a few microseconds for each 2 MiB of the heap: the kernel is asked what is
/// resident.
///
/// ```
/// let usage = weir::heap::usage();
/// println!("{} KiB live, {} KiB idle", usage.live_bytes >> 10, usage.idle_bytes >> 10);
/// ```
pub fn usage() -> Usage {
    let (usage, gauges) = (HEAP.usage(), &HEAP.pages().gauges);
    Usage {
        live_bytes: usage.live,
        idle_bytes: usage.idle,
        fragmented_bytes: usage.fragmented,
        merged_bytes: usage.merged,
        metadata_bytes: usage.metadata,
        untouched_bytes: usage.untouched,
        mapped_bytes: gauges.mapped_bytes.get() as usize,
        mapped_count: HEAP.mapped_count(),
        address_space_bytes: gauges.address_bytes.get() as usize,
    }
}
