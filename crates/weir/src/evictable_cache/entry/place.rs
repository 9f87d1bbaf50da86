//! Where entries lie: in the process's heap, or in a zone of the program's own; where neither has memory, what a load found
//! lies where the program's other values lie.

use alloc::alloc as program;
use core::alloc::Layout;
use core::ptr::NonNull;
use weir_core::base::units::PAGE;
use weir_core::base::zone_class::ZoneClass;

use crate::heap;
use crate::zone::{MAX_RUN, Zone};

/// Alignment of every block of the heap.
const HEAP_ALIGN: usize = 16;

/// The heap, a zone, or the program's allocator.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Weir's heap, whichever global allocator the program has.
    Heap,
    /// Runs of whole pages of this zone.
    Zone(&'static Zone),
    /// The program's global allocator. No cache lies there: it is for entries for which its place has no memory.
    Program,
}

impl Place {
    /// A block; `None`: there is no memory, or (in a zone) it would be larger than a run can be.
    pub fn alloc(self, layout: Layout) -> Option<NonNull<u8>> {
        match self {
            Self::Heap if layout.align() <= HEAP_ALIGN => NonNull::new(heap::alloc(layout.size())),
            Self::Heap => NonNull::new(heap::alloc_aligned(layout.align(), layout.size())),
            Self::Zone(zone) => Some(zone.alloc_aligned(layout.size(), layout.align().max(PAGE))?.into_raw().cast()),
            // SAFETY: an entry's layout, which has a header and so is not empty.
            Self::Program => NonNull::new(unsafe { program::alloc(layout) }),
        }
    }

    /// Frees one.
    ///
    /// # Safety
    /// The block is from [`Place::alloc`] with that layout, and not used any more.
    pub unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        match self {
            // SAFETY: a block of the heap of that size, which the caller gives up, and which was never resized.
            Self::Heap if layout.align() <= HEAP_ALIGN => unsafe { heap::free_sized(block.as_ptr(), layout.size()) },
            // SAFETY: a block of the heap, which the caller gives up.
            Self::Heap => unsafe { heap::free(block.as_ptr()) },
            Self::Zone(zone) => {
                let run = NonNull::slice_from_raw_parts(block, self.size(layout));
                // SAFETY: a run of the zone, whole, as `alloc` got it: it rounds up as `size` does.
                drop(unsafe { zone.pages_from_raw(run) });
            }
            // SAFETY: from `alloc` with this layout, and given up by the caller.
            Self::Program => unsafe { program::dealloc(block.as_ptr(), layout) },
        }
    }

    /// Bytes that a block of that layout takes.
    pub fn size(self, layout: Layout) -> usize {
        match self {
            Self::Heap => heap::block_size(layout),
            Self::Zone(_) => layout.size().div_ceil(PAGE).saturating_mul(PAGE),
            Self::Program => heap::program_block_size(layout),
        }
    }

    /// The class of zones that entries lie in.
    pub fn class(self) -> ZoneClass {
        match self {
            Self::Heap | Self::Program => ZoneClass::Normal,
            Self::Zone(zone) => zone.class(),
        }
    }

    /// Bytes of the largest block.
    pub fn largest(self) -> usize {
        match self {
            Self::Heap | Self::Program => isize::MAX as usize - PAGE,
            Self::Zone(_) => MAX_RUN,
        }
    }
}
