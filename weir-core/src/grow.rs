//! Runs that grow or shrink.
//!
//! A run grows in place as long as the pages behind it are free. One that has grown past [`FIRST_MAPPED`] moves to a
//! mapping of its own: there growth moves page table entries, costs no copy and leaves no hole. What plain allocations ask
//! for stays in the heap, where it costs no system call. As for a program which grows such blocks and frees them again and
//! again page faults would cost more than copies do, each such free raises that size to the block's, up to
//! [`LAST_MAPPED`] (the C library raises its threshold for mappings in the same way).

use core::sync::atomic::Ordering::Relaxed;

use crate::buddy::Backing;
use crate::heap::{Heap, MAX_RUN, Space};
use crate::large::give_pages_in;
use crate::page::{PAGE, PAGEBLOCK_PAGES};
use crate::platform::Platform;
use crate::report::Want;
use crate::size_class::MAX_SIZE;
use crate::stats::{self, Cause};

/// Size, bytes, from which a run that has grown is mapped on its own: the copies before it are cheap.
pub(crate) const FIRST_MAPPED: usize = 128 << 10;
/// The most that this size is raised to.
const LAST_MAPPED: usize = MAX_RUN * PAGE;
/// Part of a mapped block's length that it grows by at least.
const SLACK: usize = 8;
/// And the most of that, bytes.
const MOST_SLACK: usize = 16 << 20;
/// Blocks mapped on their own beyond which no run becomes one: Linux allows a process 65,530 mappings.
const MOST_MAPPED: usize = 1 << 13;

impl<P: Platform> Heap<P> {
    /// Resizes a run in place, if that can be done; whether it was.
    pub(crate) fn resize_run(&self, low: bool, page: u32, pages: usize, size: usize) -> bool {
        let wanted = size.div_ceil(PAGE);
        if size <= MAX_SIZE && !low || wanted > MAX_RUN {
            return false;
        }
        let space = if low { &self.low } else { &self.normal };
        if wanted < pages {
            return wanted >= pages / 2 && self.cut(space, page, pages, wanted);
        }
        wanted == pages || self.extend(space, page, pages, wanted)
    }

    fn cut(&self, space: &Space, page: u32, pages: usize, wanted: usize) -> bool {
        // SAFETY: the run is the caller's, so is its head's descriptor.
        unsafe { *space.window.desc(page) = wanted as u32 };
        give_pages_in(self, space, page + wanted as u32, pages - wanted, 0);
        true
    }

    fn extend(&self, space: &Space, page: u32, pages: usize, wanted: usize) -> bool {
        let window = &space.window;
        // SAFETY: a pageblock is named by a page of its own.
        let node = unsafe { (*window.block(page / PAGEBLOCK_PAGES as u32)).node } as usize;
        let more = wanted - pages;
        let extended = space.zones[node].lock(&self.platform).extend(window, page + pages as u32, more);
        let Some((again, fresh)) = extended else { return false };
        self.note_again(again);
        stats::add(&self.platform.stats().used_bytes, (more * PAGE) as u64);
        // SAFETY: the run is the caller's, so is its head's descriptor.
        unsafe { *window.desc(page) = wanted as u32 };
        self.make_room(fresh);
        true
    }

    /// Whether a run of `pages` pages that is to have `size` bytes is better off in a mapping of its own, wherever it is.
    pub(crate) fn outgrows(&self, pages: usize, size: usize) -> bool {
        let from = self.mapped_from.load(Relaxed);
        size >= from && pages * PAGE < size && pages * PAGE < 2 * from
    }

    /// A block mapped on its own for a run that has grown to `size` bytes; null: it stays in the heap.
    pub(crate) fn map_grown(&self, size: usize) -> *mut u8 {
        if size < self.mapped_from.load(Relaxed) || size > MAX_RUN * PAGE || self.mapped_count() >= MOST_MAPPED {
            return core::ptr::null_mut();
        }
        self.map_block(size.next_multiple_of(PAGE), PAGE).0
    }

    /// Resizes a block mapped on its own. One that grows by less than a part of its length gets that part at once:
    /// addresses, not memory, so that a buffer that grows by small steps does not cost a system call each.
    pub(crate) fn resize_mapped(&self, block: *mut u8, len: usize, size: usize) -> *mut u8 {
        let step = (len / SLACK).min(MOST_SLACK);
        if size <= len && len - size <= step {
            return block;
        }
        if size > len && size - len < step {
            // What ends below the last size that stays in the heap must not look longer when it is freed.
            let most = if size <= LAST_MAPPED { LAST_MAPPED } else { usize::MAX };
            let grown = self.remap(block as usize, len, (len + step).min(most));
            if !grown.is_null() {
                return grown;
            }
        }
        self.remap(block as usize, len, size)
    }

    /// A block of `len` bytes that is mapped on its own is freed.
    pub(crate) fn note_mapped_free(&self, len: usize) {
        if len <= LAST_MAPPED {
            self.mapped_from.fetch_max(len + PAGE, Relaxed);
        }
    }

    /// Releases what is idle of the pageblocks that a run was in, which has just been freed. No huge page is split.
    #[cold]
    pub(crate) fn release_run(&self, low: bool, page: u32, pages: usize) {
        let want = Want { cause: Cause::Idle, split: Backing::Small };
        let blocks = page / PAGEBLOCK_PAGES as u32..=(page + pages as u32 - 1) / PAGEBLOCK_PAGES as u32;
        let space = if low { &self.low } else { &self.normal };
        for block in blocks {
            // SAFETY: a pageblock is named by a page of its own; its node never changes.
            let node = unsafe { (*space.window.block(block)).node } as usize;
            let site = self.site(low, node);
            let is_shared = site.zone.lock(&self.platform).is_shared_huge(site.window, block);
            // A free does not wait for the balancer's batch, which may hold much more than this.
            if !is_shared && site.in_flight.try_lock(&self.platform).is_some() {
                site.report_block(want, block);
            }
        }
    }
}
