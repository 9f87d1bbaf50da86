//! Where entries lie: in the process's heap, in a zone of the program's own, or along a list of the two. Where none has memory,
//! what a load found lies where the program's other values lie.

use alloc::alloc as program;
use core::alloc::Layout;
use core::ptr::NonNull;
use weir_core::base::units::PAGE;
use weir_core::base::zone_class::ZoneClass;

use crate::evictable_cache::host::{self, MAX_RUN, Zone};

/// The zones of which entries take their memory.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Weir's heap, whichever global allocator the program has.
    Heap,
    /// Runs of whole pages below 4 GiB.
    Low32,
    /// Runs of whole pages of this zone.
    Zone(&'static Zone),
    /// Runs of whole pages of this zone first, and of the heap where that is at its low mark.
    First(&'static Zone),
    /// The program's global allocator. No cache lies there: it is for entries for which its place has no memory.
    Program,
}

impl Place {
    /// A block; `None`: there is no memory, or (in a zone) it would be larger than a run can be. To be called under no lock.
    pub fn alloc(self, layout: Layout) -> Option<NonNull<u8>> {
        host::serve_child();
        match self {
            Self::Heap => host::alloc(layout),
            Self::Zone(zone) => host::alloc_in(zone, layout),
            Self::First(zone) => host::alloc_first_in(zone, layout, self.size(layout)),
            Self::Low32 => host::alloc_low32(layout),
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
            // SAFETY: from `alloc` with this layout, and given up by the caller.
            Self::Heap => unsafe { host::free(block, layout) },
            // SAFETY: a run that `alloc` got, whole: it rounds up as `size` does.
            Self::Zone(zone) | Self::First(zone) => unsafe { host::free_run(Some(zone), block, self.size(layout)) },
            // SAFETY: as above.
            Self::Low32 => unsafe { host::free_run(None, block, self.size(layout)) },
            // SAFETY: from `alloc` with this layout, and given up by the caller.
            Self::Program => unsafe { program::dealloc(block.as_ptr(), layout) },
        }
    }

    /// Whether a block of a cache of this place lies in a zone that is the parent's: in a forked child alone. The child may not
    /// write there, and in a zone of huge pages nothing may be there to read. So the address alone decides.
    #[inline]
    pub fn is_foreign(&self, block: NonNull<u8>) -> bool {
        host::has_foreign_entries() && self.is_in_foreign_zone(block)
    }

    #[cold]
    fn is_in_foreign_zone(&self, block: NonNull<u8>) -> bool {
        match self {
            Self::Zone(zone) | Self::First(zone) => zone.is_foreign_at(block.addr().get()),
            Self::Heap | Self::Low32 | Self::Program => false,
        }
    }

    /// Bytes that a block of that layout takes.
    pub fn size(self, layout: Layout) -> usize {
        match self {
            Self::Heap => host::block_size(layout),
            Self::Low32 | Self::Zone(_) | Self::First(_) => layout.size().div_ceil(PAGE).saturating_mul(PAGE),
            Self::Program => host::program_block_size(layout),
        }
    }

    /// The class of zones that entries lie in, or try first.
    pub fn class(self) -> ZoneClass {
        match self {
            Self::Heap | Self::Program => ZoneClass::Normal,
            Self::Low32 => ZoneClass::Low32,
            Self::Zone(zone) | Self::First(zone) => zone.class(),
        }
    }

    /// Bytes of the largest block.
    pub fn largest(self) -> usize {
        match self {
            Self::Heap | Self::Program => isize::MAX as usize - PAGE,
            Self::Low32 | Self::Zone(_) | Self::First(_) => MAX_RUN,
        }
    }
}
