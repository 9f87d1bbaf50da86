//! Where the kernel was asked to merge: ranges of pages, of which no two touch.
//!
//! Each may cost two mappings, of which a process may have 65,530. A range that is asked for again costs none, and what lies beside
//! another becomes one with it. What was unmapped since counts on.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::base::run::Run;
use crate::base::units::{Order, PAGE, PageNo};
use crate::platform::Platform;

/// Ranges at most, until the kernel is told to merge no more.
pub(super) const MOST: usize = 4096;
/// Bytes of their memory.
const LEN: usize = (MOST * size_of::<[PageNo; 2]>()).next_multiple_of(PAGE);

/// The ranges, in order. They are changed under the first node's batch lock alone.
pub(super) struct Asked {
    /// Their memory, which comes with the first and stays; 0: there is none.
    memory: AtomicUsize,
    count: AtomicUsize,
}

impl Asked {
    pub(super) const fn new() -> Self {
        Self { memory: AtomicUsize::new(0), count: AtomicUsize::new(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Whether there is no room for another range.
    pub(super) fn is_full(&self) -> bool {
        self.count.load(Relaxed) >= MOST
    }

    /// Adds a range; `false`: there are too many, or there is no memory. Under the batch lock.
    pub(super) fn add<P: Platform>(&self, platform: &P, range: Range<PageNo>) -> bool {
        if self.memory.load(Relaxed) == 0 {
            let Ok(at) = platform.map_metadata(LEN, Order::PAGE) else { return false };
            self.memory.store(at, Relaxed);
        }
        let at = self.memory.load(Relaxed) as *mut [PageNo; 2];
        // SAFETY: the mapping has room for so many, and was zero at first, which is a value of each. Who calls has the lock, so that
        // nothing else refers to it.
        let ranges = unsafe { core::slice::from_raw_parts_mut(at, MOST) };
        let count = add(ranges, self.count.load(Relaxed), [range.start, range.end]);
        count.inspect(|&count| self.count.store(count, Relaxed)).is_some()
    }

    /// Forgets all. Under the batch lock.
    pub(super) fn clear(&self) {
        self.count.store(0, Relaxed);
    }

    /// Their memory, if there is some.
    pub(super) fn memory(&self) -> Option<Run> {
        Some(self.memory.load(Relaxed)).filter(|&addr| addr != 0).map(|addr| Run { addr, len: LEN })
    }
}

/// Adds a range to the first `count` of `ranges`, in the place of those that touch it; how many there are then. `None`: too many.
fn add(ranges: &mut [[PageNo; 2]], count: usize, [start, end]: [PageNo; 2]) -> Option<usize> {
    let from = ranges[..count].partition_point(|before| before[1] < start);
    let to = ranges[..count].partition_point(|range| range[0] <= end);
    let whole = ranges[from..to].iter().fold([start, end], |[a, b], range| [a.min(range[0]), b.max(range[1])]);
    let left = count + 1 - (to - from);
    if left > ranges.len() {
        return None;
    }
    ranges.copy_within(to..count, from + 1);
    ranges[from] = whole;
    Some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// Runs of numbers one after another, of which no two touch.
    fn runs_of(pages: &BTreeSet<u32>) -> Vec<[PageNo; 2]> {
        let begins = pages.iter().filter(|&&page| page == 0 || !pages.contains(&(page - 1)));
        let end_of = |begin: u32| (begin..).find(|page| !pages.contains(page)).unwrap();
        begins.map(|&begin| [PageNo(begin), PageNo(end_of(begin))]).collect()
    }

    proptest! {
        #[test]
        fn they_are_the_pages_that_were_asked_for_in_as_few_ranges_as_can_be(
            asked in prop::collection::vec((0u32..200, 1u32..20), 0..100),
        ) {
            const ROOM: usize = 12;
            let (mut ranges, mut count, mut pages) = ([[PageNo(0); 2]; ROOM], 0, BTreeSet::new());
            for (start, len) in asked {
                let mut with = pages.clone();
                with.extend(start..start + len);
                let added = add(&mut ranges, count, [PageNo(start), PageNo(start + len)]);
                prop_assert_eq!(added.is_some(), runs_of(&with).len() <= ROOM);
                if let Some(now) = added {
                    (count, pages) = (now, with);
                }
                prop_assert_eq!(&ranges[..count], &runs_of(&pages)[..]);
            }
        }
    }
}
