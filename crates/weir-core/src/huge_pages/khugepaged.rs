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
//! group has no room for a huge page. Looks at those that count as huge pages find that, as one is resident as a whole or not at
//! all. They count as single pages from then on. One that the program has touched whole cannot be told from a huge page.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::watch::{FILLED_PRESSURE, Watch};
use crate::base::backing::Backing;
use crate::base::run::Run;
use crate::base::units::{BlockNo, Bytes, PAGEBLOCK, PAGEBLOCK_PAGES, Pages};
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
    /// Looks at up to `count` pageblocks that no huge page is known to back. Reports again those that the kernel filled
    /// and that are mostly free; returns bytes. Looks at some that count as huge pages, too.
    pub(crate) fn report_filled(&self, goal: &Goal, count: usize) -> Bytes {
        if !self.caches.pages.platform.may_have_huge() {
            return Bytes::ZERO;
        }
        let (mut bytes, mut inside) = (Bytes::ZERO, Pages::ZERO);
        self.look_over(false, &self.state.filled_from, count, |block, node, resident| {
            if resident == PAGEBLOCK_PAGES {
                let (reported, left) = self.report_filled_one(goal, block, node);
                (bytes, inside) = (bytes + reported, inside + left);
            }
        });
        if !inside.is_zero() {
            bytes += self.caches.report_slabs(goal, Pass::Held);
        }
        // There may be many, and what is found stays so: fewer, and never more at a time than under pressure.
        let few = if self.caches.pages.platform.huge_on_touch() { count.div_ceil(4).min(FILLED_PRESSURE) } else { 0 };
        self.look_over(true, &self.state.huge_from, few, |block, node, resident| {
            if (1..PAGEBLOCK_PAGES).contains(&resident) {
                self.forget_one(block, node);
            }
        });
        bytes
    }

    /// Calls `look` with up to `count` pageblocks in use that count as huge pages, or do not; with the node of each, and how many
    /// of its pages are resident. Begins where it ended the last time.
    fn look_over(&self, are_huge: bool, begin: &AtomicU32, count: usize, mut look: impl FnMut(BlockNo, usize, usize)) {
        let pages = &self.caches.pages;
        let blocks = pages.normal.top().block().0;
        let (mut looks, mut gone_over, mut from) = (0, 0, begin.load(Relaxed));
        while looks < count && gone_over < blocks {
            if from >= blocks {
                from = 0;
            }
            let found = self.next_in_use(are_huge, BlockNo(from)..BlockNo(blocks.min(from + LOOKS)));
            let next = found.map_or_else(|next| next, |(block, _)| block.next()).0;
            (gone_over, from) = (gone_over + (next - from), next);
            if let Ok((block, node)) = found {
                looks += 1;
                let run = Run { addr: pages.normal.addr_of(block.first()), len: PAGEBLOCK };
                if let Some(resident) = pages.platform.resident(run) {
                    look(block, node, resident);
                }
            }
        }
        begin.store(from, Relaxed);
    }

    /// The next pageblock in use of `blocks` that counts as a huge page, or does not, and its node; or where to look next.
    fn next_in_use(&self, is_huge: bool, blocks: Range<BlockNo>) -> Result<(BlockNo, usize), BlockNo> {
        let (pages, end) = (&self.caches.pages, blocks.end);
        let found = |(node, row): (usize, Range<BlockNo>)| {
            let zone = pages.nodes.get(node).zone(ZoneKind::Normal).lock(&pages.platform);
            Some((zone.next_in_use(&pages.normal, is_huge, row)?, node))
        };
        pages.normal.rows(blocks).find_map(found).ok_or(end)
    }

    /// `block` counts as a huge page and is none. Its free pages go like any others; so something has changed.
    fn forget_one(&self, block: BlockNo, node: usize) {
        let pages = &self.caches.pages;
        let zone = pages.nodes.get(node).zone(ZoneKind::Normal);
        zone.lock(&pages.platform).forget_huge(&pages.normal, block.row(1), false);
        self.look_again();
    }

    /// All of `block` is resident. Bytes reported of it, and pages inside its slabs that are to be.
    fn report_filled_one(&self, goal: &Goal, block: BlockNo, node: usize) -> (Bytes, Pages) {
        let window = &self.caches.pages.normal;
        let inside = self.refill_slabs(block, node);
        let mut zone = self.caches.pages.nodes.get(node).zone(ZoneKind::Normal).lock(&self.caches.pages.platform);
        // Pages may have been handed out and touched between the two looks: then all of it may well be resident.
        if zone.next_in_use(window, false, block.row(1)).is_none() {
            return (Bytes::ZERO, Pages::ZERO);
        }
        let Some(used) = zone.collapsed(window, block, inside) else { return (Bytes::ZERO, Pages::ZERO) };
        stats::add(&self.caches.pages.platform.stats().huge_collapsed, 1);
        if used > SPARSE && goal.row().splits != Backing::Huge {
            return (Bytes::ZERO, Pages::ZERO);
        }
        if !zone.has_idle(window, block) {
            zone.split(window, block, Contents::Zero);
            return (Bytes::ZERO, inside);
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
