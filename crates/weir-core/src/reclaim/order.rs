//! The order of reclaim, in one place: the cheapest first; then the loop that goes through it.

use super::goal::{Goal, Kind, Need};
use super::reclaimable::{Reclaimable, Reclaimed};
use super::step::Step;
use crate::base::units::Bytes;

/// The order.
pub const ORDER: [Step; 22] = [
    Step::Refused,
    Step::OldMetadata,
    Step::Retained,
    Step::Blocks,
    Step::Pools,
    Step::Buckets,
    Step::StaleCaches,
    Step::BlocksAgain,
    Step::WarmCaches,
    Step::BlocksAgain,
    Step::Moves,
    Step::Evict,
    Step::Shrink,
    Step::CachesAgain,
    Step::BlocksAgain,
    Step::Runs,
    Step::SlabPages,
    Step::Filled,
    Step::Merge,
    Step::Sparse,
    Step::Metadata,
    Step::Mappings,
];

/// Works towards `goal` until `is_enough` of what was reclaimed, or the goal's bytes are reached, or nothing is left.
///
/// At last it cools what was split: the kernel charges a huge page whole until the part that was released is split off it. A
/// limit counts that charge, and who asked looks at it. An allocation that only makes room for itself is not held up for it.
pub(crate) fn run(goal: &Goal, all: &[&dyn Reclaimable], is_enough: impl FnMut(Reclaimed) -> bool) -> Reclaimed {
    let mut sum = go_through(goal, all, is_enough);
    if !goal.row().is_awaited || goal.row().need != Need::None {
        for reclaimable in all.iter().filter(|reclaimable| reclaimable.steps().has(Step::Cool)) {
            sum += reclaimable.scan(Step::Cool, goal);
        }
    }
    sum
}

fn go_through(goal: &Goal, all: &[&dyn Reclaimable], mut is_enough: impl FnMut(Reclaimed) -> bool) -> Reclaimed {
    let (mut sum, mut moved, mut shrunk) = (Reclaimed::default(), Bytes::ZERO, Bytes::ZERO);
    // A shortage is over when the allocation is served: what is released is no use to it.
    let is_counted = goal.kind != Kind::Shortage;
    for step in ORDER.into_iter().filter(|&step| goal.row().steps.has(step)) {
        if step == Step::BlocksAgain && core::mem::replace(&mut moved, sum.moved) == sum.moved {
            continue;
        }
        if step == Step::Evict {
            shrunk = sum.moved;
        }
        if step == Step::CachesAgain && shrunk == sum.moved {
            continue;
        }
        for i in 0..all.len() {
            let reclaimable = all[(goal.turn + i) % all.len()];
            if !reclaimable.steps().has(step) {
                continue;
            }
            loop {
                let left = if is_counted { goal.bytes - sum.released } else { goal.bytes };
                let got = reclaimable.scan(step, &Goal { bytes: left, ..*goal });
                sum += got;
                if is_counted && sum.released >= goal.bytes || !got.is_nothing() && is_enough(sum) {
                    return sum;
                }
                // One that stopped as it had found what was wanted may have more; of what is in use no more goes at this
                // priority.
                if step.is_by_priority() || got.is_nothing() || got.total() < left {
                    break;
                }
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::cause::Cause;
    use crate::base::time::Time;
    use crate::reclaim::step::Steps;
    use core::cell::{Cell, RefCell};

    /// Holds bytes that go in one step, at most `bite` of them in a scan, and writes down in which order it is scanned.
    struct Held<'a> {
        name: u8,
        step: Step,
        bytes: Cell<usize>,
        bite: usize,
        scans: &'a RefCell<std::vec::Vec<u8>>,
    }

    impl Reclaimable for Held<'_> {
        fn steps(&self) -> Steps {
            Steps::of(&[self.step])
        }
        fn count(&self, _goal: &Goal) -> Bytes {
            Bytes(self.bytes.get())
        }
        fn scan(&self, step: Step, goal: &Goal) -> Reclaimed {
            let bytes = self.bytes.get().min(goal.bytes.0).min(self.bite);
            self.bytes.set(self.bytes.get() - bytes);
            self.scans.borrow_mut().push(self.name);
            if step == Step::StaleCaches { Reclaimed::moved(Bytes(bytes)) } else { Reclaimed::released(Bytes(bytes)) }
        }
    }

    fn goal(kind: Kind, bytes: usize, turn: usize) -> Goal {
        Goal { bytes: Bytes(bytes), ..Goal::new(kind, Cause::Pressure, Time::ZERO, turn) }
    }

    #[test]
    fn the_cheapest_goes_first_and_the_loop_stops_at_what_is_wanted() {
        let scans = RefCell::default();
        let of = |name, step| Held { name, step, bytes: Cell::new(100), bite: 100, scans: &scans };
        let (runs, blocks, retained) = (of(1, Step::Runs), of(2, Step::Blocks), of(3, Step::Retained));
        let all: [&dyn Reclaimable; 3] = [&runs, &blocks, &retained];
        let got = run(&goal(Kind::Pressure, 150, 0), &all, |_| false);
        assert_eq!(got, Reclaimed::released(Bytes(150)));
        assert_eq!((retained.bytes.get(), blocks.bytes.get(), runs.bytes.get()), (0, 50, 100));
        assert_eq!(*scans.borrow(), [3, 2]);
        let rest = run(&goal(Kind::Pressure, usize::MAX, 0), &all, |_| false);
        assert_eq!(rest.released, Bytes(150));
    }

    #[test]
    fn what_was_split_is_cooled_at_last_unless_an_allocation_waits() {
        let scans = RefCell::default();
        let of = |name, step, bytes| Held { name, step, bytes: Cell::new(bytes), bite: 100, scans: &scans };
        let (blocks, split) = (of(1, Step::Blocks, 100), of(2, Step::Cool, 0));
        let all: [&dyn Reclaimable; 2] = [&blocks, &split];
        run(&goal(Kind::Pressure, 50, 0), &all, |_| false);
        assert_eq!(*scans.borrow(), [1, 2], "a goal that is reached ends by it too");
        run(&goal(Kind::Room, 50, 0), &all, |_| false);
        assert_eq!(*scans.borrow(), [1, 2, 1]);
    }

    #[test]
    fn none_is_always_first() {
        let scans = RefCell::default();
        let of = |name| Held { name, step: Step::Blocks, bytes: Cell::new(100), bite: 100, scans: &scans };
        let (a, b) = (of(1), of(2));
        let all: [&dyn Reclaimable; 2] = [&a, &b];
        run(&goal(Kind::Pressure, 10, 0), &all, |_| false);
        run(&goal(Kind::Pressure, 10, 1), &all, |_| false);
        assert_eq!(*scans.borrow(), [1, 2]);
    }

    #[test]
    fn what_is_free_goes_before_what_caches_hold_and_that_before_what_is_in_use() {
        let tiers: &[&[Step]] = &[
            &[Step::Refused, Step::OldMetadata, Step::Retained, Step::Blocks],
            &[Step::Pools],
            &[Step::Buckets],
            &[Step::StaleCaches],
            &[Step::WarmCaches],
            &[Step::Moves],
            &[Step::Evict],
            &[Step::Shrink],
            // Dear for what they bring: single pages, and pages inside slabs.
            &[Step::CachesAgain, Step::Runs, Step::SlabPages, Step::Filled],
            // It needs memory to go through the heap with, and brings none until the kernel has come by.
            &[Step::Merge],
            &[Step::Sparse],
            // It describes what all the others released, which is of no use mapped either.
            &[Step::Metadata, Step::Mappings],
        ];
        let rest: std::vec::Vec<_> = ORDER.into_iter().filter(|&step| step != Step::BlocksAgain).collect();
        assert_eq!(rest, tiers.concat());
        // What caches and a program gave up lies in whole pageblocks by then.
        for (at, _) in ORDER.iter().enumerate().filter(|&(_, &step)| step == Step::BlocksAgain) {
            assert!(matches!(ORDER[at - 1], Step::StaleCaches | Step::WarmCaches | Step::CachesAgain));
        }
    }

    #[test]
    fn a_shortage_ends_as_soon_as_the_allocation_is_served() {
        let scans = RefCell::default();
        let caches = Held { name: 1, step: Step::StaleCaches, bytes: Cell::new(100), bite: 10, scans: &scans };
        let got = run(&goal(Kind::Shortage, 10, 0), &[&caches], |got| got.moved >= Bytes(30));
        assert_eq!((got, caches.bytes.get()), (Reclaimed::moved(Bytes(30)), 70));
    }
}
