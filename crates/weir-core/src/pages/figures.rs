//! Figures of pages: which are resident, the memory of what describes them, what each zone holds, and the zones of a class together.

use core::sync::atomic::Ordering::Relaxed;

use super::heap_pages::HeapPages;
use super::node::{Node, ZoneKind};
use super::page_set::PageSet;
use super::user_zone::UserZone;
use super::window::Window;
use crate::base::run::Run;
use crate::base::units::{BlockNo, MAX_ORDER, MAX_RUN, PAGE, PAGEBLOCK, Pages};
use crate::base::zone_class::ZoneClass;
use crate::pages::zone::locked::Zone;
use crate::platform::Platform;
use crate::telemetry::trace::Place;

/// Bytes (8 GiB) of a run that are measured one by one; of a longer one equally distant pageblocks are that come to
/// as many. A look at a pageblock takes about 2 us, so that no run takes more than about 10 ms.
pub const MEASURED: usize = 8 << 30;

/// The pages of a pageblock of the heap.
pub(crate) struct BlockPages {
    /// Whether all pages are free: none has a class.
    pub is_free: bool,
    /// Pages that are resident.
    pub resident: PageSet,
    /// The kernel was asked which are; else these are those that count as resident.
    pub is_measured: bool,
}

/// Resident bytes of `run`, whole pages; `None` where the platform cannot say. What is not mapped is not resident.
pub(crate) fn resident_bytes<P: Platform>(platform: &P, run: Run) -> Option<usize> {
    let end = run.addr + run.len;
    let step = run.len.div_ceil(MEASURED).max(1);
    let mut pages = Pages::ZERO;
    for addr in (run.addr..end).step_by(PAGEBLOCK * step) {
        let piece = Run { addr, len: PAGEBLOCK.min(end - addr) };
        pages += PageSet(platform.resident_pages(piece)?).len() * step;
    }
    Some(pages.length().min(run.len))
}

impl<P: Platform> HeapPages<P> {
    /// The pages of pageblock `block`, below the window's top; `None`: it is a hole.
    pub(crate) fn block_pages(&self, kind: ZoneKind, block: BlockNo) -> Option<BlockPages> {
        let (window, page) = (self.window(kind), block.first());
        let states = self.zone_of(kind, page).lock(&self.platform).page_states(window, block)?;
        // The window's first pageblock may lack pages, and nothing need be mapped there.
        let skipped = states.ours.runs().next().map_or(0, |run| run.start);
        let run = Run { addr: window.addr_of(block.page(skipped)), len: PAGEBLOCK - skipped * PAGE };
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
        let blocks = self.top().block().index();
        self.arrays().map(|(addr, bytes)| Run { addr, len: (blocks * bytes).next_multiple_of(PAGE) })
    }
}

impl<P: Platform> HeapPages<P> {
    /// Bytes given back in all to what a limit of memory is about: huge pages of the system's pool are in none.
    pub(crate) fn given_back(&self) -> u64 {
        let all = self.platform.stats().given_back.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>();
        all.saturating_sub(self.user.pool_bytes.load(Relaxed))
    }
}

// What each zone holds, for those who look at the process.

/// A zone's figures, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneFigures {
    /// Where it is.
    pub place: Place,
    /// The node of a zone of the heap, or the number of one that the program made.
    pub number: u64,
    /// Address space in it, resident or not.
    pub bytes: usize,
    /// Handed out.
    pub used: usize,
    /// Free and resident.
    pub idle: usize,
}

impl<P: Platform> HeapPages<P> {
    /// Calls `f` with the figures of each zone that has memory, and of NORMAL of the first node in any case: the budget is told with
    /// that. Those of the nodes come first, then those of the program. `f` is called under the lock of the list of the latter, and
    /// may not allocate.
    pub fn each_zone(&self, mut f: impl FnMut(ZoneFigures)) {
        let mut tell = |place, number, zone: &Zone| {
            let areas = zone.lock(&self.platform);
            let [bytes, used, idle] = [areas.pages, areas.used, areas.idle].map(|pages| pages.bytes().0);
            drop(areas);
            if bytes > 0 || (place, number) == (Place::Normal, 0) {
                f(ZoneFigures { place, number, bytes, used, idle });
            }
        };
        for (number, node) in self.nodes.iter().enumerate() {
            tell(Place::Normal, number as u64, node.zone(ZoneKind::Normal));
            tell(Place::Low32, number as u64, node.zone(ZoneKind::Low32));
        }
        let _list = self.user.lock.lock(&self.platform);
        for zone in self.user.iter().filter(|zone| !zone.is_foreign()) {
            tell(Place::User, zone.number(), &zone.areas);
        }
    }
}

// The zones of a class together, over all NUMA nodes: what the node balancer is told of them.

/// Zones of a class. All in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassTotals {
    /// Pages that the zones have, or may grow to.
    pub(crate) pages: Pages,
    /// Pages that are not handed out.
    pub(crate) free: Pages,
    /// Order of the largest free block.
    pub(crate) largest: Option<u32>,
}

impl<P: Platform> HeapPages<P> {
    /// The zones below 4 GiB, mapped or not; nothing as long as there are none.
    pub(crate) fn low32_totals(&self) -> ClassTotals {
        let mut all = ClassTotals::default();
        for node in self.nodes.iter() {
            let zone = node.zone(ZoneKind::Low32).lock(&self.platform);
            all.add(zone.pages, zone.used, zone.largest_free());
        }
        let more = self.window(ZoneKind::Low32).growable();
        if !all.pages.is_zero() {
            all.add(more, Pages::ZERO, (more >= MAX_RUN).then_some(MAX_ORDER - 1));
        }
        all
    }

    /// The program's own zones of a class, those of the numbers that `is_wanted`.
    pub(crate) fn user_totals(&self, class: ZoneClass, is_wanted: &dyn Fn(u64) -> bool) -> ClassTotals {
        let mut all = ClassTotals::default();
        let _zones = self.user.lock.lock(&self.platform);
        let is_of_these = |zone: &&UserZone| zone.class() == class && !zone.is_foreign() && is_wanted(zone.number());
        for zone in self.user.iter().filter(is_of_these) {
            let areas = zone.areas.lock(&self.platform);
            let closed = areas.closed();
            all.add(areas.pages - closed.pages, areas.used - closed.used, areas.largest_free());
        }
        all
    }
}

#[cfg(debug_assertions)]
impl<P: Platform> HeapPages<P> {
    /// How often pageblocks of the program's own zones were looked at so far.
    pub(crate) fn user_zone_visits(&self) -> usize {
        let _zones = self.user.lock.lock(&self.platform);
        self.user.iter().map(|zone| zone.window.visits.load(Relaxed)).sum()
    }
}

impl ClassTotals {
    fn add(&mut self, pages: Pages, used: Pages, largest: Option<u32>) {
        (self.pages, self.free, self.largest) =
            (self.pages + pages, self.free + pages - used, self.largest.max(largest));
    }
}
