//! What is full and still gets a huge page, at a price that is bounded.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::units::PAGEBLOCK;
use weir_core::heap::Heap;
use weir_core::platform::{Collapse, Diagnostics};

use crate::fake::Fake;
use crate::held::World;
use crate::reclaim::order::{self, RUN, runs};

const MIB: usize = 1 << 20;
/// Bytes of a heap that is large enough for huge pages to pay.
const LARGE: usize = 40 * MIB;
/// Collapses in a window, of 1 ms each.
const AT_ONCE: usize = 3;
/// Looks in which a pageblock must not have changed.
const STILL: usize = 3;

/// A heap of runs, as small as those of `bytes` make it, where huge pages come to those who ask and none has asked.
fn full_of_runs(bytes: usize) -> World {
    let fake = Fake::new();
    fake.huge_on_advice.store(true, Relaxed);
    let mut world = World::new(fake);
    runs(&mut world, bytes / RUN);
    world
}

/// Ends a calm window, as the background thread does.
fn calm(world: &World) {
    world.heap.reclaim().collapse_still();
    order::calm(world);
}

fn calls(world: &World) -> Vec<usize> {
    std::mem::take(&mut *world.fake().collapse_calls.lock().unwrap()).iter().map(|run| run.addr).collect()
}

fn says(world: &World, outcome: Collapse, ms: u64) {
    *world.fake().collapses.lock().unwrap() = (outcome, ms);
}

/// Calm windows until the balancer wants no more of them; returns the pageblocks that were to be collapsed meanwhile.
fn at_rest(world: &World) -> Vec<usize> {
    for _ in 0..1000 {
        world.fake().pass_ms(world.fake().tunables().idle_ms.get());
        world.heap.reclaim().collapse_still();
        if !world.heap.reclaim().balance_calm() {
            world.audit();
            return calls(world);
        }
    }
    panic!("the balancer does not sleep");
}

/// The pageblocks that are full of what is held, but for the heap's first one, which may lack pages.
fn full(world: &World) -> BTreeSet<usize> {
    let of = |block: usize| world.held.iter().filter(move |held| held.addr & !(PAGEBLOCK - 1) == block);
    let blocks: BTreeSet<usize> = world.held.iter().map(|held| held.addr & !(PAGEBLOCK - 1)).collect();
    blocks.into_iter().skip(1).filter(|&block| of(block).map(|held| held.len).sum::<usize>() == PAGEBLOCK).collect()
}

#[test]
fn all_that_is_full_gets_one_once_after_three_looks_a_few_a_window() {
    let world = full_of_runs(LARGE);
    (0..STILL).for_each(|_| calm(&world));
    assert!(calls(&world).is_empty(), "it is too early");
    calm(&world);
    let mut made = calls(&world);
    assert_eq!(made.len(), AT_ONCE);
    made.extend(at_rest(&world));
    let full = full(&world);
    assert_eq!((made.iter().copied().collect::<BTreeSet<_>>(), made.len()), (full.clone(), full.len()));
    assert_eq!(world.fake().stats().huge_made.load(Relaxed), made.len() as u64);
    assert!(at_rest(&world).is_empty(), "none twice");
}

#[test]
fn what_is_freed_of_it_goes_back_as_ever_and_its_rest_is_cooled() {
    let mut world = full_of_runs(LARGE);
    let made: BTreeSet<_> = at_rest(&world).into_iter().collect();
    world.fake().take_cooled();
    for block in (0..world.held.len()).rev().filter(|block| block % 2 != 0) {
        world.free(block, false);
    }
    assert!(at_rest(&world).is_empty());
    assert!(world.heap.figures().usage().idle < MIB);
    let cooled: BTreeSet<_> = world.fake().take_cooled().iter().map(|run| run.addr).collect();
    assert!(made.is_subset(&cooled), "{} of {}", made.intersection(&cooled).count(), made.len());
    // Filled again it is as any other, and gets one again.
    runs(&mut world, LARGE / RUN / 2);
    assert!(at_rest(&world).len() >= made.len() / 2);
}

#[test]
fn what_changes_gets_none_and_keeps_nothing_else_from_its_own() {
    let mut world = full_of_runs(LARGE);
    let busy = full(&world).into_iter().next().unwrap();
    for _ in 0..40 {
        let of_busy = world.held.iter().position(|held| held.addr & !(PAGEBLOCK - 1) == busy).unwrap();
        world.free(of_busy, false);
        // So that it does not wait in a CPU's bucket.
        world.heap.purge();
        runs(&mut world, 1);
        calm(&world);
    }
    let made: BTreeSet<_> = calls(&world).into_iter().collect();
    let mut full = full(&world);
    full.remove(&busy);
    assert!(!made.contains(&busy));
    assert_eq!(made, full);
}

#[test]
fn a_pageblock_that_changed_meanwhile_does_not_count_as_one_huge_page() {
    let mut world = full_of_runs(LARGE);
    (0..STILL).for_each(|_| calm(&world));
    // The lowest is collapsed first.
    let block = full(&world).into_iter().next().unwrap();
    let is_in_it = |world: &World, held: usize| world.held[held].addr & !(PAGEBLOCK - 1) == block;
    let inside: Vec<usize> = (0..world.held.len()).rev().filter(|&held| is_in_it(&world, held)).collect();
    let freed: Vec<usize> = inside.into_iter().skip(1).map(|held| world.give_up(held).addr).collect();
    // SAFETY: the world outlives the collapse, for which alone the hook is kept.
    let heap: &'static Heap<Fake> = unsafe { &*std::ptr::from_ref::<Heap<Fake>>(&world.heap) };
    world.fake().while_it_collapses(move || {
        // SAFETY: they were the test's, which gives them back.
        freed.iter().for_each(|&addr| unsafe { heap.free(addr as *mut u8) });
        heap.purge();
    });
    world.fake().take_cooled();
    calm(&world);
    assert_eq!(calls(&world).first(), Some(&block));
    calm(&world);
    assert!(world.fake().take_cooled().iter().any(|run| run.addr == block), "what was split of it is charged");
}

#[test]
fn long_calls_and_a_system_that_is_short_are_left_in_peace_for_a_time() {
    // A call of 40 ms is paid for by 40 s, a shortage by a minute, as is the longest call.
    let cases = [(Collapse::Done, 40, 40_000), (Collapse::Short, 1, 60_000), (Collapse::Done, 3_600_000, 60_000)];
    for (outcome, ms, pause) in cases {
        let mut world = full_of_runs(LARGE);
        says(&world, outcome, ms);
        let first = at_rest(&world);
        assert_eq!(first.len(), 1, "and the balancer does not wait for it");
        world.fake().pass_ms(pause);
        says(&world, Collapse::Done, 1);
        runs(&mut world, 1);
        let others = at_rest(&world);
        assert!(others.len() > 10);
        assert_eq!(others.contains(&first[0]), outcome == Collapse::Short, "what got none is asked for again");
    }
}

#[test]
fn what_cannot_be_done_is_asked_once_and_what_is_unfit_once_until_it_changes() {
    let mut world = full_of_runs(LARGE);
    says(&world, Collapse::Unfit, 0);
    let unfit = at_rest(&world);
    assert_eq!(unfit.len(), full(&world).len());
    runs(&mut world, 1);
    assert!(at_rest(&world).len() <= 1);
    says(&world, Collapse::Never, 0);
    let held = world.held.len();
    (0..held).step_by(8).for_each(|i| world.free(held - 1 - i, false));
    runs(&mut world, held / 8);
    assert_eq!(at_rest(&world).len(), 1);
    world.fake().pass_ms(365 * 24 * 3600 * 1000);
    runs(&mut world, 1);
    assert!(at_rest(&world).is_empty());
}

#[test]
fn none_is_put_where_the_owner_the_limit_the_pressure_or_the_system_says_no() {
    let never: [fn(&World); 5] = [
        |world| world.fake().tunables().huge_blocks.set(0),
        |world| world.fake().tunables().hard_limit.set(1 << 30),
        |world| world.fake().stats().pressure_level.store(1, Relaxed),
        |world| world.fake().huge_on_advice.store(false, Relaxed),
        |world| {
            world.fake().tunables().merge.set(1);
            world.fake().merges.store(true, Relaxed);
        },
    ];
    for never in never {
        let world = full_of_runs(LARGE);
        never(&world);
        assert!(at_rest(&world).is_empty());
    }
    let world = full_of_runs(LARGE);
    world.fake().tunables().merge.set(1);
    assert!(!at_rest(&world).is_empty(), "the system merges nothing");
    assert!(at_rest(&full_of_runs(LARGE / 2)).is_empty(), "small heaps gain nothing");
}

#[test]
fn a_call_in_which_the_process_stood_still_was_not_slow() {
    let world = full_of_runs(LARGE);
    // SAFETY: the world outlives the collapse, for which alone the hook is kept.
    let heap: &'static Heap<Fake> = unsafe { &*std::ptr::from_ref::<Heap<Fake>>(&world.heap) };
    world.fake().while_it_collapses(move || heap.platform().stand_still_ms(3_600_000));
    assert!(at_rest(&world).len() > 10);
}
