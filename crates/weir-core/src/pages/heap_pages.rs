//! The pages of a heap: taken from the caller's node first, which grows for it, and given back; the sites of reports.

use super::hard_limit::HardLimit;
use super::node::{Isolated, Node, Nodes, ZoneKind};
use super::pageblock::Advice;
use super::report::ReportSite;
use super::request::Short;
use super::user_zone::UserZones;
use super::window::Window;
use super::zone::locked::Zone;
use super::zone::{FreeAreas, PageRun, Purpose};
use crate::base::cause::Cause;
use crate::base::time::Time;
use crate::base::units::{BlockNo, MAX_ORDER, Order, PAGEBLOCK, PageNo, Pages, Span};
use crate::base::zone_class::ZoneClass;
use crate::platform::lock::Guard;
use crate::platform::{Platform, Reach, rank};
use crate::reclaim::{Events, Goal, Kind};
use crate::telemetry::gauges::Gauges;
use crate::telemetry::trace::Place;
use core::sync::atomic::AtomicU64;

/// The pages of a heap, on a platform.
#[repr(C)]
pub struct HeapPages<P> {
    /// Addresses of the normal zones.
    pub(crate) normal: Window,
    /// Addresses of the zones below 4 GiB.
    pub(crate) low: Window,
    pub(crate) nodes: Nodes,
    /// Zones of a program's own.
    pub(crate) user: UserZones,
    pub(crate) events: Events,
    pub(crate) hard_limit: HardLimit,
    /// Before this time (ns) what the heap grows by asks for no huge pages: they take too long.
    pub(super) huge_asks_from: AtomicU64,
    /// What the first touches of huge pages took beyond those of single pages, ns.
    pub(super) huge_owed: AtomicU64,
    pub(crate) platform: P,
    /// Bytes that the program holds.
    pub gauges: Gauges,
}

impl<P: Platform> HeapPages<P> {
    /// Nothing is mapped yet.
    pub(crate) const fn new(platform: P) -> Self {
        Self {
            normal: Window::new(Reach::Any),
            low: Window::new(Reach::Low32),
            nodes: Nodes::new(),
            user: UserZones::new(),
            events: Events::new(),
            hard_limit: HardLimit::new(),
            huge_asks_from: AtomicU64::new(0),
            huge_owed: AtomicU64::new(0),
            platform,
            gauges: Gauges::new(),
        }
    }

    /// The window of a kind of zone.
    #[inline]
    pub(crate) fn window(&self, kind: ZoneKind) -> &Window {
        if kind == ZoneKind::Normal { &self.normal } else { &self.low }
    }

    /// The caller's node, as far as nodes are told apart.
    #[inline]
    pub(crate) fn home(&self) -> usize {
        let count = self.nodes.count();
        if count == 1 { 0 } else { self.platform.node().min(count - 1) }
    }

    /// The other parts of the NUMA node that node `node` is a part of.
    pub(in crate::pages) fn siblings(&self, node: usize) -> impl Iterator<Item = usize> {
        self.parts(node).filter(move |&other| other != node)
    }

    /// All parts of that NUMA node.
    pub(in crate::pages) fn parts(&self, node: usize) -> impl Iterator<Item = usize> {
        let numa_node = self.platform.numa_node(node);
        (0..self.nodes.count()).filter(move |&other| self.platform.numa_node(other) == numa_node)
    }

    /// The node that `page` lies on.
    #[inline]
    pub(crate) fn node_of(&self, kind: ZoneKind, page: PageNo) -> &Node {
        self.nodes.get(self.window(kind).node_of(page))
    }

    /// The zone that `page` is of.
    #[inline]
    pub(crate) fn zone_of(&self, kind: ZoneKind, page: PageNo) -> &Zone {
        self.node_of(kind, page).zone(kind)
    }

    /// Holds batches of `node` off, after the one in flight.
    pub(crate) fn batch(&self, node: usize) -> Guard<'_, Isolated, P, { rank::BATCH }> {
        self.nodes.get(node).batch.lock(&self.platform)
    }

    /// Returns once every batch is over that was in flight when this was called.
    pub(crate) fn pass_batches(&self) {
        let mut number = 0;
        // Counted anew each time: the first lock may have been that of a thread which found more nodes.
        while number < self.nodes.count() {
            drop(self.batch(number));
            number += 1;
        }
    }

    // ---- pages taken and given ---------------------------------------------------------------------------------

    /// Takes `pages` pages for `purpose`, aligned to `align`: of the caller's node; else a run that is resident in a sibling, a part
    /// of the same NUMA node, that has its lock free. A slab would be the sibling's: the next object would take a slab more. Else
    /// the caller's node grows for it, and other nodes serve if it cannot.
    pub(crate) fn take(&self, kind: ZoneKind, pages: Pages, align: Order, purpose: Purpose) -> Result<PageRun, Short> {
        let huge = self.platform.huge_on_touch();
        let (_hold, most_fresh) = self.hold_pages(pages, huge);
        let take_of = |node: usize| {
            let mut zone = self.nodes.get(node).zone(kind).lock(&self.platform);
            zone.take(self.window(kind), pages, align, purpose, huge, most_fresh)
        };
        let take_resident = |node: usize| {
            let mut zone = self.nodes.get(node).zone(kind).try_lock(&self.platform)?;
            zone.take(self.window(kind), pages, align, purpose, huge, Pages::ZERO).ok()
        };
        let home = self.home();
        let run = take_of(home)
            .or_else(|Short| {
                let mut siblings = self.siblings(home).filter(|_| purpose == Purpose::Run);
                siblings.find_map(take_resident).ok_or(Short)
            })
            .or_else(|Short| {
                // More address space would be no help against the hard limit.
                if most_fresh < Pages::MAX {
                    return Err(Short);
                }
                self.grow(kind, if align.0 >= MAX_ORDER - 1 { 3 } else { pages.blocks() }, take_of)
            })
            .or_else(|_| (0..self.nodes.count()).filter(|&n| n != home).find_map(|n| take_of(n).ok()).ok_or(Short))?;
        self.gauges.page_bytes.add(pages.bytes().0 as u64, &self.platform.stats().page_bytes);
        if run.asks {
            self.touch_asking(kind, Span::new(run.page, pages));
        }
        self.note_taken(&run);
        Ok(run)
    }

    /// Takes `pages` pages of NORMAL that are resident, of the caller's node, which does not grow. The pages `before` are given
    /// back first, under the same hold of the lock if they are of that node. They counted as freed when their wait began.
    pub(crate) fn take_idle(
        &self,
        before: Option<Span>,
        pages: Pages,
        align: Order,
        purpose: Purpose,
    ) -> Result<PageRun, Short> {
        let (window, huge, home) = (&self.normal, self.platform.huge_on_touch(), self.home());
        let before = before.filter(|&run| {
            let is_here = window.node_of(run.first) == home;
            if !is_here {
                self.give(ZoneKind::Normal, run, 0);
            }
            is_here
        });
        let mut zone = self.nodes.get(home).zone(ZoneKind::Normal).lock(&self.platform);
        before.into_iter().for_each(|run| zone.give(window, run, 0));
        // What is resident counts against the hard limit already.
        let run = zone.take(window, pages, align, purpose, huge, Pages::ZERO);
        drop(zone);
        let (more, less) = (run.map_or(0, |_| pages.bytes().0), before.map_or(0, |run| run.len.bytes().0));
        self.gauges.page_bytes.add(more.wrapping_sub(less) as u64, &self.platform.stats().page_bytes);
        let run = run?;
        self.note_taken(&run);
        Ok(run)
    }

    /// Grows the caller's node until `take_of` finds what it wants; the thread that had the turn before may have brought
    /// that.
    #[cold]
    fn grow(
        &self,
        kind: ZoneKind,
        blocks: usize,
        take_of: impl Fn(usize) -> Result<PageRun, Short>,
    ) -> Result<PageRun, Short> {
        self.nodes.find(&self.platform);
        let mut growing = self.window(kind).growing(&self.platform);
        let home = self.home();
        loop {
            if let Ok(run) = take_of(home) {
                return Ok(run);
            }
            let zone = self.nodes.get(home).zone(kind).lock(&self.platform);
            let (pages, end) = (zone.pages, zone.end);
            drop(zone);
            growing.have = pages;
            let is_normal = kind == ZoneKind::Normal;
            (growing.advice, growing.probes) =
                if is_normal { self.advice(home, pages, end) } else { (Advice::None, false) };
            if self.map_again(&mut growing, kind, blocks, home) {
                continue;
            }
            let row = growing.grow(blocks, home)?;
            let bytes = (BlockNo::each(row.clone()).len() * PAGEBLOCK) as u64;
            self.gauges.address_bytes.add(bytes, &self.platform.stats().address_bytes);
            self.nodes.get(home).zone(kind).lock(&self.platform).add(self.window(kind), row);
        }
    }

    fn note_taken(&self, run: &PageRun) {
        self.events.resident(&self.platform, run.fresh, run.again);
    }

    /// Takes the pages `more`, which follow a run, if they are free and of the run's node.
    pub(crate) fn extend(&self, kind: ZoneKind, more: Span) -> Result<(), Short> {
        let (window, huge) = (self.window(kind), self.platform.huge_on_touch());
        let (_hold, most_fresh) = self.hold_pages(more.len, huge);
        let mut zone = self.zone_of(kind, more.first - Pages(1)).lock(&self.platform);
        let (again, fresh) = zone.extend(window, more, huge, most_fresh)?;
        drop(zone);
        self.gauges.page_bytes.add(more.len.bytes().0 as u64, &self.platform.stats().page_bytes);
        self.events.resident(&self.platform, fresh, again);
        Ok(())
    }

    /// A block of `pages` pages is to be mapped on its own: a run that is freed next may be its former copy.
    pub(crate) fn note_large(&self, pages: Pages) {
        let zone = self.nodes.get(self.home()).zone(ZoneKind::Normal);
        zone.lock(&self.platform).growth.take(pages, pages);
    }

    /// Gives pages back to their zone by `give`, under its lock.
    #[inline]
    pub(crate) fn give_by<T>(&self, kind: ZoneKind, run: Span, give: impl FnOnce(&mut FreeAreas, &Window) -> T) -> T {
        // Both halves of a run of two pageblocks came from one zone.
        let given = give(&mut self.zone_of(kind, run.first).lock(&self.platform), self.window(kind));
        let bytes = run.len.bytes();
        self.gauges.page_bytes.sub(bytes.0 as u64, &self.platform.stats().page_bytes);
        self.events.freed(&self.platform, bytes);
        given
    }

    /// Gives pages back to their zone; bit i of `reported`: page i of them is reported.
    pub(crate) fn give(&self, kind: ZoneKind, run: Span, reported: u32) {
        self.give_by(kind, run, |zone, window| zone.give(window, run, reported));
    }

    // ---- reports -----------------------------------------------------------------------------------------------

    /// A zone of a node, and all that a report of it needs.
    pub(crate) fn site(&self, kind: ZoneKind, number: usize) -> ReportSite<'_, P, P> {
        let node = self.nodes.get(number);
        let (class, place) = match kind {
            ZoneKind::Normal => (ZoneClass::Normal, Place::Normal),
            ZoneKind::Low32 => (ZoneClass::Low32, Place::Low32),
        };
        ReportSite {
            platform: &self.platform,
            below: &self.platform,
            in_flight: &node.batch,
            window: self.window(kind),
            zone: node.zone(kind),
            class,
            place,
            number: number as u16,
        }
    }

    /// Releases what is idle of the pageblocks that a run was in, which has just been freed. No huge page is split.
    #[cold]
    pub(crate) fn release_run(&self, kind: ZoneKind, run: Span) {
        let goal = Goal::new(Kind::Room, Cause::Idle, Time::ZERO, 0);
        for (block, _) in run.pieces() {
            let node = usize::from(self.window(kind).node_of_block(block));
            let site = self.site(kind, node);
            let is_shared = site.zone.lock(&self.platform).is_shared_huge(site.window, block);
            // A free does not wait for the balancer's batch, which may hold much more than this.
            if !is_shared && site.in_flight.try_lock(&self.platform).is_some() {
                site.report_block(&goal, block);
            }
        }
    }

    /// All zones of the heap, kind by kind.
    pub(crate) fn sites(&self) -> impl Iterator<Item = ReportSite<'_, P, P>> {
        let count = self.nodes.count();
        (0..2 * count).map(move |i| self.site(ZoneKind::ALL[i / count], i % count))
    }

    /// Whether reports are switched off: then nothing is released.
    pub(crate) fn is_reporting(&self) -> bool {
        self.platform.tunables().report.get() != 0
    }
}
