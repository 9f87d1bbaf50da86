//! Pageblocks that the kernel filled up behind the engine's back.
//!
//! Where huge pages are `always`, khugepaged may put one behind a pageblock of which a single page is in use
//! (`max_ptes_none` is 511): all that was reported of it is resident again. Nobody says so; so partly reported
//! pageblocks are looked at, a few in each calm window and all of them under pressure. What was found is counted as idle
//! again, and where most of the huge page is free it is reported at once: khugepaged comes by every ten seconds at most,
//! and memory counts for more than what it may try again.

use core::sync::atomic::Ordering::Relaxed;

use crate::buddy::Backing;
use crate::heap::Heap;
use crate::page::{PAGEBLOCK, PAGEBLOCK_PAGES};
use crate::platform::{Platform, Run};
use crate::report::Want;
use crate::stats;

/// Pageblocks that one look under the zone lock goes over.
const LOOKS: u32 = 256;

impl<P: Platform> Heap<P> {
    /// Looks at up to `count` partly reported pageblocks, and reports again what the kernel filled and is mostly free;
    /// returns bytes.
    pub(crate) fn report_collapsed(&self, want: Want, count: usize) -> usize {
        if !self.platform.huge_on_touch() {
            return 0;
        }
        let window = &self.normal.window;
        let blocks = window.top() / PAGEBLOCK_PAGES as u32;
        let (mut bytes, mut asked, mut gone_over) = (0, 0, 0);
        let mut from = self.collapsed_from.load(Relaxed);
        while asked < count && gone_over < blocks {
            if from >= blocks {
                from = 0;
            }
            let found = self.next_part_reported(from);
            let next = found.map_or_else(|next| next, |(block, _)| block + 1);
            (gone_over, from) = (gone_over + (next - from), next);
            if let Ok((block, node)) = found {
                asked += 1;
                bytes += self.report_if_collapsed(want, block, node);
            }
        }
        self.collapsed_from.store(from, Relaxed);
        bytes
    }

    /// The next partly reported pageblock and its node, or where to look next.
    fn next_part_reported(&self, from: u32) -> Result<(u32, usize), u32> {
        let window = &self.normal.window;
        let zones = self.normal.zones[..self.nodes()].iter().enumerate();
        let found = zones.map(|(node, zone)| {
            zone.lock(&self.platform).part_reported(window, from, LOOKS).map(|block| (block, node))
        });
        found.min_by_key(|found| found.map_or_else(|next| next, |(block, _)| block)).unwrap_or(Err(from + LOOKS))
    }

    fn report_if_collapsed(&self, want: Want, block: u32, node: usize) -> usize {
        let window = &self.normal.window;
        let addr = window.addr_of(block * PAGEBLOCK_PAGES as u32);
        let resident = self.platform.resident(Run { addr, len: PAGEBLOCK });
        if resident != Some(PAGEBLOCK_PAGES) {
            return 0;
        }
        let mut zone = self.normal.zones[node].lock(&self.platform);
        // Pages may have been handed out and touched between the two looks: then all of it may well be resident.
        if zone.part_reported(window, block, 1) != Ok(block) {
            return 0;
        }
        let backing = zone.collapsed(window, block);
        drop(zone);
        stats::add(&self.platform.stats().huge_collapsed, 1);
        let sparse = matches!(backing, Backing::SparseHuge) || backing as u8 <= want.split as u8;
        if sparse { self.site(false, node).report_block(want, block) } else { 0 }
    }
}
