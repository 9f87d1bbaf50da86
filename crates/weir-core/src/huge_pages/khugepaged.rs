//! Pageblocks that the kernel filled up behind the engine's back, and those to which it gave single pages.
//!
//! Where huge pages are `always`, khugepaged may put one behind a pageblock of which a single page is in use
//! (`max_ptes_none` is 511). Then all that was reported of it, and of its slabs, is resident again. The kernel does not say so. So
//! pageblocks in use that no huge page is known to back are looked at. A few are looked at in each calm window, many
//! under pressure, and all of them before the balancer sleeps. What was found is counted as idle again, and is reported
//! at once where most of the huge page is free. The kernel's thread comes by every ten seconds at most, and memory
//! counts for more than what it may try again.
//!
//! Where huge pages are `always`, the first touch of a pageblock may bring a single page all the same: memory is fragmented, or the
//! group has no room for a huge page. The same looks find those, as a huge page is resident as a whole or not at all. They count as
//! single pages from then on. One that the program has touched whole cannot be told from a huge page.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use super::watch::Watch;
use crate::base::backing::Backing;
use crate::base::run::Run;
use crate::base::units::{BlockNo, PAGEBLOCK, PAGEBLOCK_PAGES, Pages};
use crate::caches::slab::has_reported;
use crate::caches::slab::lists::Pass;
use crate::pages::node::ZoneKind;
use crate::pages::pageblock::SPARSE;
use crate::pages::window::{NOTHING, heads_run};
use crate::platform::{Contents, Platform};
use crate::reclaim::Goal;
use crate::telemetry::stats;

/// Pageblocks that one look under the zone lock goes over.
const LOOKS: u32 = 256;

impl<P: Platform> Watch<'_, P> {
    /// Looks at up to `count` pageblocks. Reports again those that the kernel filled and that are mostly free; returns bytes.
    /// Those that are no huge pages do not count as such any more.
    pub(crate) fn report_filled(&self, goal: &Goal, count: usize) -> usize {
        if !self.caches.pages.platform.may_have_huge() {
            return 0;
        }
        let blocks = self.caches.pages.normal.top().block().0;
        let (mut bytes, mut asked, mut gone_over, mut inside) = (0, 0, 0, Pages::ZERO);
        let mut from = self.state.filled_from.load(Relaxed);
        while asked < count && gone_over < blocks {
            if from >= blocks {
                from = 0;
            }
            let found = self.next_in_use(BlockNo(from)..BlockNo(blocks.min(from + LOOKS)));
            let next = found.map_or_else(|next| next, |(block, ..)| block.next()).0;
            (gone_over, from) = (gone_over + (next - from), next);
            if let Ok((block, is_huge, node)) = found {
                asked += 1;
                let addr = self.caches.pages.normal.addr_of(block.first());
                let resident = self.caches.pages.platform.resident(Run { addr, len: PAGEBLOCK });
                match resident {
                    Some(PAGEBLOCK_PAGES) if !is_huge => {
                        let (reported, left) = self.report_filled_one(goal, block, node);
                        (bytes, inside) = (bytes + reported, inside + left);
                    }
                    Some(1..PAGEBLOCK_PAGES) if is_huge => self.forget_one(block, node),
                    _ => {}
                }
            }
        }
        self.state.filled_from.store(from, Relaxed);
        if !inside.is_zero() {
            bytes += self.caches.report_slabs(goal, Pass::Held);
        }
        bytes
    }

    /// The next pageblock of `blocks` to look at, whether it counts as a huge page, and its node; or where to look next.
    fn next_in_use(&self, blocks: Range<BlockNo>) -> Result<(BlockNo, bool, usize), BlockNo> {
        let (pages, end) = (&self.caches.pages, blocks.end);
        let found = |(node, row): (usize, Range<BlockNo>)| {
            let zone = pages.nodes.get(node).zone(ZoneKind::Normal).lock(&pages.platform);
            let (block, is_huge) = zone.next_in_use(&pages.normal, row)?;
            Some((block, is_huge, node))
        };
        pages.normal.rows(blocks).find_map(found).ok_or(end)
    }

    /// `block` counts as a huge page and is none. Its free pages go like any others; so something has changed.
    fn forget_one(&self, block: BlockNo, node: usize) {
        let pages = &self.caches.pages;
        let zone = pages.nodes.get(node).zone(ZoneKind::Normal);
        zone.lock(&pages.platform).forget_huge(&pages.normal, block.row(1));
        self.look_again();
    }

    /// All of `block` is resident. Bytes reported of it, and pages inside its slabs that are to be.
    fn report_filled_one(&self, goal: &Goal, block: BlockNo, node: usize) -> (usize, Pages) {
        let window = &self.caches.pages.normal;
        let inside = self.refill_slabs(block, node);
        let mut zone = self.caches.pages.nodes.get(node).zone(ZoneKind::Normal).lock(&self.caches.pages.platform);
        // Pages may have been handed out and touched between the two looks: then all of it may well be resident.
        if zone.next_in_use(window, block.row(1)) != Some((block, false)) {
            return (0, Pages::ZERO);
        }
        let Some(used) = zone.collapsed(window, block, inside) else { return (0, Pages::ZERO) };
        stats::add(&self.caches.pages.platform.stats().huge_collapsed, 1);
        if used > SPARSE && goal.row().splits != Backing::Huge {
            return (0, Pages::ZERO);
        }
        if !zone.has_idle(window, block) {
            zone.split(window, block, Contents::Zero);
            return (0, inside);
        }
        drop(zone);
        (self.caches.pages.site(ZoneKind::Normal, node).report_block(goal, block), inside)
    }

    /// The kernel put memory behind what was reported inside the slabs of `block`; returns how many pages that is.
    fn refill_slabs(&self, block: BlockNo, node: usize) -> Pages {
        // So that no cache goes meanwhile.
        let _in_flight = self.caches.pages.batch(node);
        let window = &self.caches.pages.normal;
        let (mut page, mut pages) = (block.first(), Pages::ZERO);
        while page < block.next().first() {
            let number = match window.class_of(page) {
                class if class == NOTHING || heads_run(class) => None,
                class => self.caches.number_of(class, page),
            };
            let cache = number.filter(|&number| self.caches.is_reclaimable(number)).map(|n| self.caches.table.get(n));
            if let Some(cache) = cache
                && let Some(domain) = cache.domains().nth(node)
            {
                let g = cache.shape.get();
                // Most have none, as a full pageblock's. No lock is taken for those; what is reported meanwhile has no memory.
                if has_reported(window, &g, page) {
                    pages += domain.slabs.lock(&self.caches.pages.platform).refilled(window, &g, page);
                }
                page += g.slab_pages().max(Pages(1));
            } else {
                page += Pages(1);
            }
        }
        pages
    }
}
