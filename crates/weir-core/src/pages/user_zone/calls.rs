//! Calls of a program on a zone of its own: to make it known, to take and give pages, to close ranges of it. Reclaim's visits of
//! all zones are here as well.

use crate::base::invalid_free::InvalidFree;
use crate::base::units::{BlockNo, Bytes, Order, PAGE, Pages, Span};
use crate::pages::heap_pages::HeapPages;
use crate::pages::report::ReportSite;
use crate::pages::request::Short;
use crate::pages::zone::{FreeAreas, PageRun, Purpose};
use crate::platform::{Host, Platform};
use crate::policy::refault::Refault;
use crate::policy::watermarks::Marks;
use crate::telemetry::stats;
use crate::telemetry::trace::Place;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::pages::user_zone::{InUse, Lack, UserZone, ZoneUsage};

/// How long a thread that removes a zone sleeps between two looks whether the zone is in use, ns (choice).
const UNPIN_NS: u64 = 200_000;

impl<P: Platform> HeapPages<P> {
    /// Makes a zone known, so that reclaim scans it as all else. One that is never reported counts in full against the hard
    /// limit from now on ([`crate::heap::zones::Zones::room`]).
    ///
    /// # Safety
    /// It lives, where it is, until [`HeapPages::remove_zone`] returns, is added once, and is used through shared references alone
    /// meanwhile; `zone` may come from one.
    pub(crate) unsafe fn add_zone(&self, zone: NonNull<UserZone>) {
        let mut last = self.user.lock.lock(&self.platform);
        *last += 1;
        // SAFETY: the caller promises that the zone lives and is used through shared references alone; this is another.
        unsafe { zone.as_ref() }.number.store(*last, Relaxed);
        let end = self.user.iter().last().map_or(&self.user.first, |zone| &zone.next);
        end.store(zone.as_ptr(), Release);
    }

    /// Forgets a zone; when this returns, no thread but the caller's uses it.
    pub fn remove_zone(&self, zone: &UserZone) {
        let guard = self.user.lock.lock(&self.platform);
        let links = core::iter::once(&self.user.first).chain(self.user.iter().map(|zone| &zone.next));
        if let Some(link) = links.into_iter().find(|link| core::ptr::eq(link.load(Relaxed), zone)) {
            link.store(zone.next.load(Relaxed), Release);
        }
        drop(guard);
        loop {
            let pins = zone.pins.load(Acquire);
            if pins == 0 {
                return;
            }
            // Whoever has it pinned is in the middle of a batch, or between two: then it needs a CPU, which may be this thread's.
            drop(self.batch(0));
            self.platform.wait_for(&zone.pins, pins, Some(UNPIN_NS));
        }
    }

    /// Takes `pages` pages (1 to 1024) in a row, aligned to `align`; [`Short`] if there are none, or the zone is
    /// another process's. O(1) but for a batch that is waited for.
    pub fn zone_take(&self, zone: &UserZone, pages: Pages, align: Order) -> Result<PageRun, Short> {
        Ok(self.zone_try_take(zone, pages, align)?)
    }

    /// [`HeapPages::zone_take`], which says what is missing.
    pub(crate) fn zone_try_take(&self, zone: &UserZone, pages: Pages, align: Order) -> Result<PageRun, Lack> {
        let take = || self.zone_take_if(zone, pages, align, |_| true);
        take().or_else(|_| {
            // What is missing may be isolated.
            drop(self.batch(0));
            take()
        })
    }

    /// [`HeapPages::zone_take`] where more than `mark` of the zone's pages stay free. O(1): no batch is waited for.
    pub(crate) fn zone_take_above(
        &self,
        zone: &UserZone,
        pages: Pages,
        align: Order,
        mark: impl Fn(&Marks) -> Pages,
    ) -> Result<PageRun, Short> {
        Ok(self.zone_take_if(zone, pages, align, |areas| self.stays_above(areas, pages, mark))?)
    }

    /// Whether the zone would stay above low with `pages` pages less.
    pub(crate) fn zone_is_above(&self, zone: &UserZone, pages: Pages) -> bool {
        self.stays_above(&zone.areas.lock(&self.platform), pages, |marks| marks.low)
    }

    fn stays_above(&self, areas: &FreeAreas, pages: Pages, mark: impl Fn(&Marks) -> Pages) -> bool {
        let scale = self.platform.tunables().watermark_scale.get() as usize;
        areas.open_free() > pages + mark(&Marks::of(areas.pages - areas.closed().pages, scale))
    }

    fn zone_take_if(
        &self,
        zone: &UserZone,
        pages: Pages,
        align: Order,
        may_take: impl FnOnce(&FreeAreas) -> bool,
    ) -> Result<PageRun, Lack> {
        if !zone.can_serve(pages, align) {
            return Err(Lack::Pages);
        }
        // All of a locked zone is resident, and counts since it was made.
        let (_hold, most_fresh) = if zone.memory.reported {
            self.hold_pages(pages, zone.memory.huge)
        } else {
            (self.hard_limit.hold_nothing(), Pages::MAX)
        };
        let mut areas = zone.areas.lock(&self.platform);
        if !may_take(&areas) {
            return Err(Lack::Pages);
        }
        let taken = areas.take(&zone.window, pages, align, Purpose::Run, zone.memory.huge, most_fresh);
        let run = taken.map_err(|Short| {
            let is_free = most_fresh < Pages::MAX && areas.has(&zone.window, pages, align, Purpose::Run);
            if is_free { Lack::Room } else { Lack::Pages }
        })?;
        drop(areas);
        self.events.taken_again(&self.platform, run.again);
        Ok(PageRun { fresh: run.fresh + Pages(run.again.pages as usize), again: Refault::NONE, ..run })
    }

    /// Gives pages back that were taken together, or a part of them.
    ///
    /// Returns what is wrong with them where that is seen: they are not the zone's, or free already.
    pub fn zone_give(&self, zone: &UserZone, addr: usize, pages: Pages) -> Result<(), InvalidFree> {
        self.zone_give_bare(zone, addr, pages, 0)
    }

    /// [`HeapPages::zone_give`] of a run that was just taken, and for which there is no memory. Bit i of `bare`: the i-th pageblock
    /// that has a part of it got none.
    pub fn zone_give_bare(&self, zone: &UserZone, addr: usize, pages: Pages, bare: u32) -> Result<(), InvalidFree> {
        let last = addr.checked_add(pages.max(Pages(1)).length() - 1).ok_or(InvalidFree::ForeignPointer)?;
        let (Some(page), Some(_)) = (zone.window.page_of(addr), zone.window.page_of(last)) else {
            return Err(InvalidFree::ForeignPointer);
        };
        if !addr.is_multiple_of(PAGE) {
            return Err(InvalidFree::InteriorPointer);
        }
        if zone.is_foreign() {
            return Ok(());
        }
        let mut areas = zone.areas.lock(&self.platform);
        if !areas.is_used(&zone.window, Span::new(page, pages)) {
            return Err(InvalidFree::DoubleFree);
        }
        areas.give(&zone.window, Span::new(page, pages), 0);
        if bare != 0 {
            areas.stays_bare(&zone.window, Span::new(page, pages), bare);
        }
        drop(areas);
        stats::add(&self.platform.stats().free_misses, 1);
        self.events.freed(&self.platform, pages.bytes());
        Ok(())
    }

    /// Address of a run's first page.
    pub fn zone_addr(&self, zone: &UserZone, run: PageRun) -> usize {
        zone.window.addr_of(run.page)
    }

    /// Usage of the zone now.
    pub fn zone_usage(&self, zone: &UserZone) -> ZoneUsage {
        let areas = zone.areas.lock(&self.platform);
        ZoneUsage { pages: areas.pages, used: areas.used, idle: areas.idle, closed: areas.closed().pages }
    }

    /// Closes `blocks`, numbered from the zone's first; returns how many of their pages are in use. At 0 they are out of
    /// use; else [`HeapPages::zone_usage`] and further calls of this say how it goes on as they are freed.
    pub fn zone_close(&self, zone: &UserZone, blocks: Range<BlockNo>) -> Pages {
        // A batch in flight would put its pages back into the range later.
        let _none_in_flight = self.batch(0);
        zone.areas.lock(&self.platform).close(&zone.window, blocks)
    }

    /// Puts closed pageblocks back into use.
    pub fn zone_open(&self, zone: &UserZone, blocks: Range<BlockNo>) {
        zone.areas.lock(&self.platform).open(&zone.window, blocks);
    }

    /// Takes `blocks` out of use if none of their pages is in use; else all stays as it was. O(their number).
    pub fn zone_offline(&self, zone: &UserZone, blocks: Range<BlockNo>) -> Result<(), InUse> {
        // As in `zone_close`.
        let _none_in_flight = self.batch(0);
        let mut areas = zone.areas.lock(&self.platform);
        // Looked at first: opened again, blocks that were closed before would be handed out, and they may be unmapped.
        match areas.used_in(&zone.window, blocks.clone()) {
            Pages::ZERO => {
                areas.close(&zone.window, blocks);
                Ok(())
            }
            pages => Err(InUse { pages }),
        }
    }

    /// Calls `f` for each zone that may be reported, one after another, without the list's lock; adds up what it says.
    pub(crate) fn each_user_zone(&self, mut f: impl FnMut(&ReportSite<P, dyn Host>) -> Bytes) -> Bytes {
        let (mut last, mut sum) = (0, Bytes::ZERO);
        loop {
            let guard = self.user.lock.lock(&self.platform);
            let is_next = |zone: &UserZone| zone.number() > last;
            let reported = |zone: &&UserZone| is_next(zone) && zone.memory.reported && !zone.is_foreign();
            let Some(zone) = self.user.iter().find(reported) else { return sum };
            zone.pins.fetch_add(1, Relaxed);
            drop(guard);
            last = zone.number();
            sum += f(&ReportSite {
                platform: &self.platform,
                // SAFETY: `UserZone::new` requires that the host lives as long as the zone, which is pinned here.
                below: unsafe { zone.below.as_ref() },
                in_flight: &self.nodes.get(0).batch,
                window: &zone.window,
                zone: &zone.areas,
                class: zone.class(),
                place: Place::User,
                number: zone.trace_number(),
            });
            zone.unpin();
        }
    }

    /// In a forked child: the threads that had a zone pinned are not there, and what is shared is the parent's.
    pub(crate) fn inherit_zones(&self) {
        self.user.pool_bytes.store(0, Relaxed);
        for zone in self.user.iter() {
            // A pin of this thread's own may be among them (see `UserZone::unpin`).
            zone.pins.store(0, Relaxed);
            zone.foreign.store(zone.memory.shared || zone.is_foreign(), Relaxed);
        }
    }

    /// Whether every list and count of a zone is right, as [`crate::heap::Heap::audit`] says it of the heap's own.
    pub fn zone_audit(&self, zone: &UserZone) -> Result<(), crate::base::fault::Fault> {
        let _no_batch_in_flight = self.batch(0);
        zone.areas.lock(&self.platform).audit(&zone.window).map(|_| ())
    }
}
