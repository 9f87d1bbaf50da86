//! Which pages are resident; and the memory of what describes them.

use super::heap_pages::Pages;
use super::node::{Node, ZoneKind};
use super::page_set::PageSet;
use super::window::Window;
use crate::base::run::Run;
use crate::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use crate::platform::Platform;

/// Bytes (8 GiB) of a run that are measured one by one; of a longer one equally distant pageblocks are that come to
/// as many. A look at a pageblock takes about 2 us, so that no run takes more than about 10 ms.
pub const MEASURED: usize = 8 << 30;

/// The pages of a pageblock of the heap.
pub(crate) struct BlockPages {
    /// All of them are free: none has a class.
    pub is_free: bool,
    /// Those that are resident.
    pub resident: PageSet,
    /// The kernel was asked which are; else these are those that count as resident.
    pub is_measured: bool,
}

/// Resident bytes of `run`, whole pages; `None` where the platform cannot say. What is not mapped is not resident.
pub(crate) fn resident_bytes<P: Platform>(platform: &P, run: Run) -> Option<usize> {
    let end = run.addr + run.len;
    let step = run.len.div_ceil(MEASURED).max(1);
    let mut pages = 0;
    for addr in (run.addr..end).step_by(PAGEBLOCK * step) {
        let piece = Run { addr, len: PAGEBLOCK.min(end - addr) };
        pages += PageSet(platform.resident_pages(piece)?).len() * step;
    }
    Some((pages * PAGE).min(run.len))
}

impl<P: Platform> Pages<P> {
    /// The pages of pageblock `block`, below the window's top; `None`: it is a hole.
    pub(crate) fn block_pages(&self, kind: ZoneKind, block: u32) -> Option<BlockPages> {
        let (window, page) = (self.window(kind), block * PAGEBLOCK_PAGES as u32);
        let states = self.zone_of(kind, page).lock(&self.platform).page_states(window, block)?;
        // The window's first pageblock may lack pages, and nothing need be mapped there.
        let skipped = states.ours.next_run(0).map_or(0, |(first, _)| first);
        let run = Run { addr: window.addr_of(page + skipped as u32), len: PAGEBLOCK - skipped * PAGE };
        let measured = self.platform.resident_pages(run).map(|pages| PageSet(pages).shifted(skipped));
        let resident = measured.unwrap_or(states.backed).and(&states.ours);
        Some(BlockPages { is_free: states.is_free, resident, is_measured: measured.is_some() })
    }

    /// Resident bytes of class maps, pageblocks, descriptors and further nodes.
    pub(super) fn metadata_bytes(&self) -> usize {
        let of = |run: Run| resident_bytes(&self.platform, run).unwrap_or(run.len);
        let windows = ZoneKind::ALL.into_iter().flat_map(|kind| self.window(kind).metadata());
        let nodes = ((self.nodes.count() - 1) * size_of::<Node>()).next_multiple_of(PAGE);
        windows.map(of).sum::<usize>() + nodes
    }
}

impl Window {
    /// The mapped parts of what describes the pages: class map, pageblocks, descriptors.
    fn metadata(&self) -> [Run; 3] {
        let blocks = self.top() as usize / PAGEBLOCK_PAGES;
        self.arrays().map(|(addr, bytes)| Run { addr, len: (blocks * bytes).next_multiple_of(PAGE) })
    }
}
