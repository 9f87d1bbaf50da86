//! Huge pages in little use, where the kernel puts one behind every pageblock (`always`): split and released in calm times.
//!
//! A process that peaked and freed most of it at random keeps a few objects in each pageblock, and so all of its huge pages.
//! Every `sparse_ms` a look goes over the pageblocks. A pageblock is split if at most `sparse_percent` of its huge page's pages
//! are in use. In addition it must neither have given nor got a page between two looks. Its free pages go back, then those free
//! inside its slabs. So a pageblock with traffic in it is left alone however empty it is. What the program will want again by its
//! last window's peak stays. Looks are rarer while the program is busy. If what was split is wanted again soon, the refault meter
//! makes windows longer.
//!
//! Pages are in use if an object is on them. A page of a slab without one is *hollow*, which only a walk over the slabs tells.
//! The walk goes over those slabs whose pages were kept for the sake of huge pages, and no others.
//!
//! Looks end with the second after the last change, and the thread may sleep. What was split is *cooled*
//! ([`crate::platform::Memory::cool`]), and all of it once more before the thread sleeps. The kernel's khugepaged fills up
//! pageblocks of which a single page is in use, but passes over those of which no page was used since. So a process at rest stays
//! small without a wake-up. One that goes on wakes the thread from its slow paths.
//!
//! Locks: counting goes on under the first node's batch lock, under which caches go and forks wait. Zones' locks are held for
//! `LOOKS` pageblocks at a time, slabs' for 64 slabs. The counts are a guess by the time they are used. A pageblock is split, or
//! kept, one look too early, and nothing else depends on them. What is released is isolated as ever.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::watch::Watch;
use crate::base::run::Run;
use crate::base::time::{Nanos, Time};
use crate::base::units::{BlockNo, Bytes, Order, PAGE, Pages};
use crate::caches::slab::lists::Pass;
use crate::pages::report::ReportSite;
use crate::pages::report::slices;
use crate::pages::window::Window;
use crate::platform::{Contents, Platform};
use crate::reclaim::Goal;
use crate::telemetry::stats;
use crate::telemetry::trace::Place;

/// While the program allocates and frees, looks come so many times as rarely. A split huge page costs it time, and memory that it
/// has to spare it may soon want.
const BUSY: u64 = 5;
/// Then a look that took long is also paid for by a pause of so many times that: at most 0.1 % of a CPU.
const PAUSE: u64 = 1000;
/// A pause at most, ns.
pub(super) const LONGEST_PAUSE: Nanos = Nanos(60_000_000_000);
/// Looks after the last change: the first sees what has changed, the second splits it.
const LOOKS_AFTER: u32 = 2;
/// How often khugepaged comes by (`scan_sleep_millisecs`), ns.
const KHUGEPAGED: Nanos = Nanos(10_000_000_000);

/// How many hollow pages each pageblock has: memory for the time of one look.
struct Hollow<'a, P: Platform> {
    platform: &'a P,
    run: Run,
}

impl<'a, P: Platform> Hollow<'a, P> {
    fn new(platform: &'a P, window: &Window) -> Option<Self> {
        let len = (window.top().block().index() * size_of::<u16>()).next_multiple_of(PAGE);
        let addr = if len > 0 { platform.map(len, Order::PAGE).ok()? } else { return None };
        Some(Self { platform, run: Run { addr, len } })
    }

    fn of(&self, block: BlockNo) -> Option<*mut u16> {
        let inside = block.index() < self.run.len / size_of::<u16>();
        inside.then(|| (self.run.addr as *mut u16).wrapping_add(block.index()))
    }

    fn count(&mut self, block: BlockNo, pages: Pages) {
        if let Some(at) = self.of(block) {
            // SAFETY: `of` returns elements inside the mapping, which this value owns and has borrowed exclusively here.
            unsafe { *at = (*at).saturating_add(pages.0 as u16) };
        }
    }

    fn get(&self, block: BlockNo) -> Pages {
        // SAFETY: `of` returns elements inside the mapping, aligned, and zero at first; `count`, which writes them, needs an
        // exclusive borrow, so none does now.
        Pages(self.of(block).map_or(0, |at| usize::from(unsafe { *at })))
    }
}

impl<P: Platform> Drop for Hollow<'_, P> {
    fn drop(&mut self) {
        self.platform.unmap(self.run);
    }
}

impl<P: Platform> Watch<'_, P> {
    /// Used pages up to which a huge page is in little use. `None`: huge pages are not split in calm times.
    fn sparse_limit(&self) -> Option<Pages> {
        let percent = self.caches.pages.platform.tunables().sparse_percent.get() as usize;
        let may_split = self.caches.pages.platform.may_have_huge() && self.caches.pages.platform.release_unit() == PAGE;
        (percent > 0 && may_split).then_some(Pages::BLOCK * percent / 100)
    }

    /// Something changed: looks are worth while again.
    pub(crate) fn look_again(&self) {
        if self.sparse_limit().is_some() {
            self.state.looks.left.store(LOOKS_AFTER, Relaxed);
        }
    }

    /// Whether there are looks to come.
    pub(crate) fn has_looks_left(&self) -> bool {
        self.state.looks.left.load(Relaxed) > 0
    }

    /// At the end of a calm window: looks for huge pages in little use, if it is time. Releases what is free of those that have
    /// been so for long, but for what each zone's peak wants again; returns bytes.
    pub(super) fn report_sparse(&self, goal: &Goal, quiet: bool) -> Bytes {
        let (looks, begin) = (&self.state.looks, self.caches.pages.platform.now());
        looks.wake_at.store(0, Relaxed);
        let left = looks.left.load(Relaxed);
        let Some(limit) = self.sparse_limit() else {
            looks.left.store(0, Relaxed);
            return Bytes::ZERO;
        };
        let pause = self.caches.pages.platform.tunables().sparse_ms.ns();
        let next = Time(looks.next[usize::from(!quiet)].load(Relaxed));
        // A look that is farther away than any may be was put off by a longer `sparse_ms`.
        let farthest = begin + if quiet { pause } else { (pause * BUSY).max(LONGEST_PAUSE) };
        if left == 0 || begin < next && next <= farthest {
            return Bytes::ZERO;
        }
        let any = self.look_for_sparse(limit);
        let cost = self.caches.pages.platform.now().since(begin);
        looks.next[0].store((begin + pause).0, Relaxed);
        looks.next[1].store((begin + (pause * BUSY).max((cost * PAUSE).min(LONGEST_PAUSE))).0, Relaxed);
        let (mut bytes, mut split) = (Bytes::ZERO, 0);
        if any {
            for site in self.caches.pages.sites() {
                let (got, blocks) = self.split_due(&site, goal);
                (bytes, split) = (bytes + got, split + blocks);
            }
        }
        if split > 0 {
            bytes += self.caches.report_slabs(goal, Pass::Held);
            self.cool_split();
        }
        // Splits count as a change, but only to what was not due yet.
        let left = if split > 0 { left } else { left - 1 };
        looks.left.store(left, Relaxed);
        if left == 0 {
            bytes += self.cool_all(goal);
        }
        bytes
    }

    /// One look at all pageblocks. Returns whether any is due to be split.
    fn look_for_sparse(&self, limit: Pages) -> bool {
        // Held so that no cache goes meanwhile, and no fork's child keeps the counts.
        let _in_flight = self.caches.pages.batch(0);
        let mut hollow = Hollow::new(&self.caches.pages.platform, &self.caches.pages.normal);
        if let Some(hollow) = &mut hollow {
            self.count_hollow(hollow);
        }
        let mut any = false;
        for site in self.caches.pages.sites() {
            // Slabs are in normal zones alone.
            let hollow = hollow.as_ref().filter(|_| site.place == Place::Normal);
            let hollow = |block: BlockNo| hollow.map_or(Pages::ZERO, |hollow| hollow.get(block));
            for blocks in slices(site.window) {
                any |= site.zone.lock(&self.caches.pages.platform).look(site.window, blocks, limit, hollow);
            }
        }
        any
    }

    fn count_hollow(&self, hollow: &mut Hollow<'_, P>) {
        let window = &self.caches.pages.normal;
        for cache in self.caches.reclaimable().map(|number| self.caches.table.get(number)) {
            if cache.user.retains_pages() {
                continue;
            }
            let g = cache.shape.get();
            for domain in cache.domains().take(self.caches.pages.nodes.count()) {
                let mut more = domain.slabs.lock(&self.caches.pages.platform).due(&g, Pass::Held);
                while more {
                    let mut slabs = domain.slabs.lock(&self.caches.pages.platform);
                    more = slabs.walk_held(window, &g, |page, n| hollow.count(page.block(), n));
                }
            }
        }
    }

    /// Splits the pageblocks of `site` that are due, until no more idle pages are left than its peak wants again; returns bytes
    /// and pageblocks.
    fn split_due(&self, site: &ReportSite<'_, P, P>, goal: &Goal) -> (Bytes, usize) {
        let (mut bytes, mut split) = (Bytes::ZERO, 0);
        let zone = site.zone.lock(&self.caches.pages.platform);
        let mut left = zone.idle.saturating_sub(zone.wanted_again());
        drop(zone);
        for mut blocks in slices(site.window) {
            loop {
                let mut zone = site.zone.lock(&self.caches.pages.platform);
                let Some((block, idle)) = zone.next_due(site.window, blocks.clone(), left) else { break };
                blocks.start = block.next();
                if idle.is_zero() {
                    // All that is free of it is inside its slabs.
                    zone.split(site.window, block, Contents::Zero);
                    stats::add(&self.caches.pages.platform.stats().huge_split, 1);
                } else {
                    drop(zone);
                    bytes += site.report_block(goal, block);
                    left -= idle;
                }
                split += 1;
            }
        }
        (bytes, split)
    }

    /// Cools what was split since the last call.
    fn cool_split(&self) {
        self.caches.pages.sites().for_each(|site| site.cool_split());
    }

    /// The last look before the balancer may sleep. Memory that the kernel filled up meanwhile goes back. All pageblocks that
    /// were split are cooled, whatever was used of them since. Returns bytes.
    fn cool_all(&self, goal: &Goal) -> Bytes {
        let bytes = self.report_filled(goal, usize::MAX);
        let mut any = false;
        for site in self.caches.pages.sites() {
            for blocks in slices(site.window) {
                any |= site.zone.lock(&self.caches.pages.platform).tear(site.window, blocks);
            }
        }
        self.cool_split();
        if any {
            self.state.looks.wake_at.store((self.caches.pages.events.clock() + KHUGEPAGED).0, Release);
        }
        bytes
    }

    /// On slow paths: wakes a balancer that sleeps while the program does not, for khugepaged may have filled up what was
    /// split.
    pub(crate) fn wake_for_looks(&self) {
        let wake_at = &self.state.looks.wake_at;
        let at = wake_at.load(Acquire);
        if at > 0 && self.caches.pages.platform.now() >= Time(at) && wake_at.swap(0, Relaxed) > 0 {
            self.caches.pages.platform.wake_balancer();
        }
    }
}
