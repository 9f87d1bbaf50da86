//! Free pages inside slabs are released in isolated batches, by the protocol of [`crate::pages::report`]: the objects
//! on them count as taken meanwhile.

use crate::base::run::Run;
use crate::base::units::{Bytes, PAGE, PageNo, Pages};
use crate::caches::cache::domain::Domain;
use crate::caches::heap_caches::Caches;
use crate::caches::slab::Isolated;
use crate::caches::slab::lists::Pass;
use crate::pages::node::ZoneKind;
use crate::pages::report::releaser::{RUNS, Releaser, event};
use crate::platform::{Contents, Platform};
use crate::reclaim::Goal;
use crate::reclaim::events::horizon;
use crate::telemetry::stats;
use crate::telemetry::trace::{Kind, Place};

/// Slabs isolated at a time.
const SLABS: usize = RUNS / 4;

impl<P: Platform> Caches<P> {
    /// Reports free pages inside partial slabs: of those that `pass` looks at. Returns bytes. O(slabs that changed),
    /// but for [`Pass::Changed`] O(slabs whose huge pages were kept) more.
    pub(crate) fn report_slabs(&self, goal: &Goal, pass: Pass) -> Bytes {
        (0..self.pages.nodes.count()).map(|node| self.report_slabs_of(node, goal, pass)).sum()
    }

    /// [`Caches::report_slabs`] of one node's slabs.
    pub(crate) fn report_slabs_of(&self, node: usize, goal: &Goal, pass: Pass) -> Bytes {
        let mut bytes = Bytes::ZERO;
        for number in self.reclaimable() {
            let cache = self.table.get(number);
            let Some(domain) = cache.domains().nth(node) else { continue };
            let g = cache.shape.get();
            let mut more = !cache.user.retains_pages() && domain.slabs.lock(&self.pages.platform).due(&g, pass);
            while more {
                let (got, left) = self.report_slab_batch((number, node), domain, goal, pass);
                bytes += got;
                more = left;
            }
        }
        if !bytes.is_zero() {
            // A split huge page that did not count as one has left free pages idle.
            let site = self.pages.site(ZoneKind::Normal, node);
            bytes += site.report_runs(goal, site.keep(goal));
        }
        bytes
    }

    fn note_split(&self, page: PageNo, contents: Contents) {
        let (window, block) = (&self.pages.normal, page.block());
        if self.pages.zone_of(ZoneKind::Normal, page).lock(&self.pages.platform).split(window, block, contents) {
            stats::add(&self.pages.platform.stats().huge_split, 1);
        }
    }

    /// One batch: its bytes, and whether there is more to look at. Its stack is not there for what follows.
    #[inline(never)]
    fn report_slab_batch(
        &self,
        (number, node): (usize, usize),
        domain: &Domain,
        goal: &Goal,
        pass: Pass,
    ) -> (Bytes, bool) {
        let mut in_flight = self.pages.batch(node);
        let cache = self.table.get(number);
        // Asked under the lock, all of it: before, the number may have been another cache's. Free objects of some
        // caches keep their contents.
        let is_off = self.pages.platform.tunables().report.get() == 0;
        if is_off || !self.is_reclaimable(number) || cache.user.retains_pages() {
            return (Bytes::ZERO, false);
        }
        let g = cache.shape.get();
        let window = &self.pages.normal;
        let mut batch = [Isolated::default(); SLABS];
        // The zone's lock ranks above the slabs'. What it says may change at once: then a huge page is split, or kept,
        // one pass too early; nothing else depends on it.
        let backing = |page: PageNo| {
            let zone = self.pages.zone_of(ZoneKind::Normal, page).lock(&self.pages.platform);
            zone.backing(window, page.block())
        };
        let (n, more) =
            domain.slabs.lock(&self.pages.platform).isolate(window, &g, &mut batch, (goal.row().splits, pass), backing);
        let batch = &batch[..n];
        if n == 0 {
            return (Bytes::ZERO, more);
        }
        let mut kept = [0u32; SLABS];
        let refused = |run: Run| {
            for addr in (run.addr..run.addr + run.len).step_by(PAGE) {
                let page = window.page_of(addr).unwrap_or_default();
                let is_in =
                    |slab: &Isolated| page.since(slab.page).is_some_and(|Pages(i)| i < 32 && slab.pages >> i & 1 == 1);
                let at = batch.iter().position(is_in);
                at.into_iter().for_each(|i| kept[i] |= 1 << (page - batch[i].page).0);
            }
        };
        let platform = &self.pages.platform;
        // Not lazily: a slab does not tell pages that the kernel still has from those that are gone.
        let mut releaser = Releaser::new(platform, platform, goal.cause, &mut in_flight.runs, refused).eagerly();
        for slab in batch {
            for i in (0..32).filter(|i| slab.pages >> i & 1 == 1) {
                releaser.add(Run { addr: window.addr_of(slab.page + Pages(i)), len: PAGE });
            }
        }
        let event = event(Place::Normal, node as u16, goal.cause, Kind::Slabs, n);
        let (event, how) = releaser.finish(event, horizon(self.pages.platform.tunables()));
        stats::add(&self.pages.platform.stats().given_back[goal.cause as usize], event.bytes);
        for (slab, kept) in batch.iter().zip(kept) {
            let gone = slab.pages & !kept;
            if gone != 0 {
                self.note_split(slab.page, how.contents);
            }
            domain.slabs.lock(&self.pages.platform).put_back(window, &g, *slab, gone, how);
        }
        self.give_empty(cache, domain);
        (Bytes(event.bytes as usize), more)
    }
}
