//! Whether programs touch the whole of their large blocks. Huge pages pay behind blocks that are filled, and cost
//! memory behind those that are sparse. So they are asked for only where the blocks of late were filled. These are the
//! blocks that were freed, and those that were full by the time that the next was asked for.
//!
//! So it is with the heap: what it grows by asks for huge pages if its last pageblocks were filled.

use crate::base::time::Nanos;
use crate::base::units::{BlockNo, Pages};

/// Blocks that must have been filled of the last eight freed.
const FILLED_BLOCKS: u32 = 7;
/// Or blocks one after another that were full by the time that the next was asked for.
const FILLED_AT_ONCE: u8 = 3;
/// One block in so many goes without huge pages although they pay: behind huge pages nothing can be learnt.
const PROBE: u32 = 16;

/// Pageblocks by which a growing heap judges: the last ones that show how far they were filled.
const JUDGED_BY: usize = 8;
/// Pages of them that must have been filled: seven eighths.
const FILLED_PAGES: Pages = Pages(7 * Pages::BLOCK.0);
/// Pages of the newest of them that must have been filled.
const FILLED_OF_NEWEST: Pages = Pages(Pages::BLOCK.0 * 3 / 4);
/// Pageblocks at the end of a node that need not be filled yet. A heap of many sizes has a slab of each there that is handed out in
/// part: by 77 sizes, some 300 pages in all.
const YOUNG: usize = 4;
/// Pageblocks of its node that it looks back at for them, one after the other. Before those it looks at probes alone.
const NEAR: u32 = 64;
/// Pageblocks, of any node, among which it looks for those.
const FAR: u32 = 1024;
/// Pageblocks from which on a node learns of its growth. One of 32 MiB keeps the peak within a few percent: as it ends to
/// grow, a huge page or two are not filled.
pub(crate) const LEARNS_FROM: u32 = 16;

/// A first touch of a huge page that takes longer costs as much as those of its pages would (512 of about 2 us).
const SLOW: Nanos = Nanos(1_000_000);
/// What first touches may take beyond that before the heap asks no more: two slow ones of a virtual machine, which finds a huge
/// page in about 5 ms, among many that are quick.
const LEEWAY: Nanos = Nanos(10_000_000);
/// A touch that exceeds the leeway is paid for by a pause of so many times what it took: at most 0.1 % of a CPU.
pub(crate) const PAUSE: u64 = 1000;

/// Whether a pageblock of which `pages` are in use, or resident, is as good as full.
pub(crate) fn is_filled(pages: Pages) -> bool {
    pages >= Pages::BLOCK - Pages::BLOCK / 8
}

/// Whether a pageblock is a probe: among large runs it asks for no huge page, so that it shows whether it was filled. These are 1
/// in 16 of the first GiB, and about 16 each time that the heap doubles from there. So they cost a few percent of what huge pages
/// bring, and split few mappings.
pub(crate) fn is_probe(block: BlockNo) -> bool {
    block.0.is_multiple_of(probe_every(block.0))
}

fn probe_every(pageblocks: u32) -> u32 {
    (pageblocks / 32).next_power_of_two().max(16)
}

/// The pageblocks that a node looks back at, the last first; its last one ends at `end`. The very first may lack pages.
fn looked_at(end: BlockNo, is_own: impl Fn(BlockNo) -> bool) -> impl Iterator<Item = BlockNo> {
    let (mut block, mut near, step) = (end.0, NEAR, probe_every(end.0));
    core::iter::from_fn(move || {
        while block > 0 {
            block = if near > 0 && end.0 - block < FAR { block - 1 } else { (block - 1) / step * step };
            if block > 0 && is_own(BlockNo(block)) {
                near = near.saturating_sub(1);
                return Some(BlockNo(block));
            }
        }
        None
    })
}

/// Whether a node grows dense, the last pageblock of which ends at `end`. It judges by its own: those it has used up, while other
/// nodes may have begun theirs just now. `filled` says how many pages of a pageblock were filled, as far as that shows.
pub(crate) fn grows_dense(
    end: BlockNo,
    is_own: impl Fn(BlockNo) -> bool,
    mut filled: impl FnMut(BlockNo) -> Option<Pages>,
) -> bool {
    if end.0 < LEARNS_FROM {
        return false;
    }
    let shown = |(age, block)| filled(block).filter(|&pages| age >= YOUNG || is_filled(pages));
    let mut shown = looked_at(end, is_own).enumerate().filter_map(shown).take(JUDGED_BY);
    // What is newest counts most: a program that fills no more stops the heap at the next probe.
    let Some(newest) = shown.next().filter(|&pages| pages >= FILLED_OF_NEWEST) else { return false };
    newest + shown.sum() >= FILLED_PAGES
}

/// What first touches took beyond [`SLOW`], after one more that took `took`; and whether that is too much.
pub(crate) fn owed(before: Nanos, took: Nanos) -> (Nanos, bool) {
    let owed = before.saturating_add(took).saturating_sub(SLOW);
    // Of what is too much the leeway stays: so the first slow touch after the pause is too much again.
    (owed.min(LEEWAY), owed > LEEWAY)
}

/// Notes on the last eight blocks freed, of those in use, and of how many.
#[derive(Debug, Default)]
pub struct Density {
    /// Bit i: the block freed i observations ago was filled.
    history: u8,
    /// Blocks one after another that were filled before the next was handed out.
    at_once: u8,
    handed_out: u32,
}

impl Density {
    /// Nothing seen: no huge pages yet.
    pub(crate) const fn new() -> Self {
        Self { history: 0, at_once: 0, handed_out: 0 }
    }

    /// A block without huge pages was freed; `filled` is what a look at it found.
    pub(crate) fn observe(&mut self, filled: bool) {
        self.history = (self.history << 1) + u8::from(filled);
        if !filled {
            self.at_once = 0;
        }
    }

    /// The block handed out last, without huge pages, was looked at as the next is wanted.
    pub(crate) fn observe_in_use(&mut self, filled: bool) {
        self.at_once = if filled { self.at_once.saturating_add(1) } else { 0 };
    }

    /// Whether huge pages pay.
    pub(crate) fn pays(&self) -> bool {
        self.history.count_ones() >= FILLED_BLOCKS || self.at_once >= FILLED_AT_ONCE
    }

    /// Whether the next block should have huge pages.
    pub(crate) fn wants_huge(&mut self) -> bool {
        self.handed_out = self.handed_out.wrapping_add(1);
        self.pays() && !self.handed_out.is_multiple_of(PROBE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_follow_filled_blocks_and_end_with_sparse_ones() {
        let mut density = Density::new();
        assert!(!density.wants_huge());
        (0..8).for_each(|_| density.observe(true));
        let huge = (0..PROBE).filter(|_| density.wants_huge()).count();
        assert_eq!(huge, PROBE as usize - 1, "all but the probe");
        density.observe(false);
        assert!((0..4).any(|_| density.wants_huge()), "one sparse block is no reason");
        density.observe(false);
        assert!((0..32).all(|_| !density.wants_huge()));
    }

    #[test]
    fn probes_are_one_in_sixteen_at_first_and_few_hundreds_in_all() {
        let probes = |blocks: std::ops::Range<u32>| blocks.filter(|&block| is_probe(BlockNo(block))).count();
        assert_eq!((probes(1..512), probes(512..1024), probes(1024..2048)), (31, 17, 16));
        // 1 TiB.
        assert!(probes(0..1 << 19) < 256, "{}", probes(0..1 << 19));
        for end in [16, 17, 64, 65, 300, 5000, 1 << 19] {
            let seen: Vec<BlockNo> = looked_at(BlockNo(end), |_| true).collect();
            assert!(seen.is_sorted_by(|a, b| a > b) && seen.iter().all(|block| (1..end).contains(&block.0)), "{end}");
            assert!(seen.iter().skip(NEAR as usize).all(|&block| is_probe(block)), "{end}");
            assert!(seen.len() < 256, "{end}");
            // Rows of eight pageblocks of two nodes.
            let is_own = |block: BlockNo| block.0 / 8 % 2 == 1;
            let own: Vec<BlockNo> = looked_at(BlockNo(end), is_own).collect();
            assert!(own.is_sorted_by(|a, b| a > b) && own.iter().all(|&block| is_own(block)), "{end}");
            assert!(own.len() >= (end as usize / 2).min(NEAR as usize) - 4, "{end}: {}", own.len());
        }
    }

    #[test]
    fn the_last_pageblocks_that_show_it_say_whether_a_heap_grows_dense() {
        let dense = |end: u32, filled: fn(u32) -> Option<usize>| {
            grows_dense(BlockNo(end), |_| true, |block| filled(block.0).map(|percent| Pages::BLOCK * percent / 100))
        };
        assert!(dense(16, |_| Some(100)) && !dense(15, |_| Some(100)));
        assert!(!dense(1000, |_| None) && !dense(1000, |block| (block > 995).then_some(100)));
        // Six more that say nothing, and probes far back.
        assert!(dense(1000, |block| is_probe(BlockNo(block)).then_some(100)));
        assert!(dense(1000, |block| Some(if block == 995 { 0 } else { 100 })), "one in eight is no reason");
        assert!(!dense(1000, |block| Some(if block == 994 || block == 995 { 0 } else { 100 })));
        assert!(dense(1000, |block| Some(if block < 996 { 100 } else { 0 })), "the last four may come to be filled");
        assert!(!dense(1000, |block| Some(if block < 995 { 100 } else { 0 })), "but the newest before them is");
        // Of many sizes: each pageblock has some pages that were never handed out.
        assert!(dense(1000, |block| Some(if block < 996 { 89 } else { 40 })));
        assert!(!dense(1000, |block| Some(if block < 996 { 87 } else { 40 })));
    }

    #[test]
    fn some_slow_touches_among_quick_ones_are_no_reason_to_stop() {
        let after = |touches: &[u64]| {
            let each = |(owed_before, _), &took: &u64| owed(owed_before, Nanos(took * 100_000));
            touches.iter().fold((Nanos(0), false), each)
        };
        assert_eq!(after(&[3; 100]), (Nanos(0), false));
        assert!(!after(&[47, 47]).1 && after(&[47, 47, 47]).1);
        let one_in_ten: Vec<u64> = [3, 3, 3, 3, 3, 3, 3, 3, 3, 47].repeat(100);
        assert!((1..=one_in_ten.len()).all(|n| !after(&one_in_ten[..n]).1));
        // After a pause: once is enough.
        assert!(after(&[47, 47, 47, 47]).1 && owed(Nanos(u64::MAX), Nanos(u64::MAX)) == (LEEWAY, true));
    }

    #[test]
    fn blocks_in_use_count_as_long_as_all_of_them_are_filled() {
        let mut density = Density::new();
        (0..FILLED_AT_ONCE).for_each(|_| density.observe_in_use(true));
        assert!(density.wants_huge());
        density.observe_in_use(false);
        assert!(!density.wants_huge());
        (0..FILLED_AT_ONCE).for_each(|_| density.observe_in_use(true));
        assert!(density.wants_huge());
        density.observe(false);
        assert!(!density.wants_huge(), "one freed that was sparse");
    }
}
