//! Huge pages in little use in calm times, on a clock that the test moves.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::platform::Diagnostics;

use crate::held::World;
use crate::reclaim::order::{RUN, bytes, calm, free_where, full_pageblocks, pressure, released, runs, world};

/// Pageblocks of these worlds.
const BLOCKS: usize = 4;

/// Calm windows until `ms` have passed.
fn wait(world: &World, ms: u64) {
    (0..ms / world.fake().tunables().idle_ms.get()).for_each(|_| calm(world));
}

/// Calm windows until the balancer wants no more of them.
fn wait_for_rest(world: &World) {
    let windows = (0..1000).take_while(|_| {
        world.fake().pass_ms(world.fake().tunables().idle_ms.get());
        world.heap.reclaim().balance_calm()
    });
    assert!(windows.count() < 100, "the balancer does not sleep");
    world.check_contents();
}

fn base(world: &World) -> usize {
    world.held.iter().map(|block| block.addr).min().unwrap() & !(PAGEBLOCK - 1)
}

fn splits(world: &World) -> u64 {
    world.fake().stats().huge_split.load(Relaxed)
}

/// The pageblocks that were cooled since the last call.
fn cooled(world: &World) -> BTreeSet<usize> {
    let cooled = world.fake().take_cooled();
    assert!(cooled.iter().all(|run| run.addr.is_multiple_of(PAGEBLOCK) && run.len == PAGEBLOCK));
    cooled.iter().map(|run| run.addr).collect()
}

/// Full pageblocks, of which one run in `every` stays; the bytes that are free of them.
fn sparse(every: usize) -> (World, usize) {
    let mut world = full_pageblocks(true, BLOCKS);
    let base = base(&world);
    free_where(&mut world, |addr| !((addr - base) / RUN).is_multiple_of(every));
    let free = BLOCKS * PAGEBLOCK - world.held.len() * RUN;
    (world, free)
}

#[test]
fn a_huge_page_in_little_use_is_split_after_a_while_and_one_in_good_use_is_kept() {
    for (every, goes) in [(32, true), (8, true), (4, true), (3, false), (2, false)] {
        let (world, free) = sparse(every);
        let after = world.fake().tunables().sparse_ms.get();
        wait(&world, after);
        assert_eq!(bytes(&released(&world)), 0, "it is too early");
        wait(&world, after + 600);
        assert_eq!(bytes(&released(&world)), if goes { free } else { 0 });
        assert_eq!(splits(&world), if goes { BLOCKS as u64 } else { 0 });
        assert_eq!(cooled(&world).len(), if goes { BLOCKS } else { 0 });
        wait_for_rest(&world);
        assert_eq!(bytes(&released(&world)), 0, "there is nothing left to give");
    }
}

#[test]
fn none_is_split_in_calm_times_where_that_is_switched_off() {
    let (world, free) = sparse(8);
    world.fake().tunables().sparse_percent.set(0);
    wait_for_rest(&world);
    wait(&world, 60_000);
    assert_eq!((bytes(&released(&world)), splits(&world)), (0, 0));
    world.fake().tunables().sparse_percent.set(25);
    wait_for_rest(&world);
    assert_eq!(bytes(&released(&world)), 0, "nothing has changed since, and nobody looks");
    assert!(free > 0);
}

#[test]
fn the_share_is_a_setting() {
    let (world, free) = sparse(2);
    world.fake().tunables().sparse_percent.set(50);
    wait_for_rest(&world);
    assert_eq!(bytes(&released(&world)), free);
}

#[test]
fn a_look_is_not_put_off_any_more_once_looks_are_to_come_sooner() {
    let (world, free) = sparse(8);
    let usual = world.fake().tunables().sparse_ms.get();
    world.fake().tunables().sparse_ms.set(3_600_000);
    wait(&world, 2 * usual);
    assert_eq!(bytes(&released(&world)), 0, "the second look is an hour away");
    world.fake().tunables().sparse_ms.set(usual);
    wait(&world, 2 * usual + 600);
    assert_eq!(bytes(&released(&world)), free);
}

#[test]
fn a_pageblock_with_traffic_is_left_alone_however_sparse_it_is() {
    let (mut world, _) = sparse(8);
    for _ in 0..60 {
        // The runs go to the fullest pageblock that has room; so all of them have traffic.
        runs(&mut world, BLOCKS * 28 - 4);
        let held = world.held.len();
        (0..BLOCKS * 28 - 4).for_each(|i| world.free(held - 1 - i, false));
        wait(&world, 1200);
    }
    assert_eq!((splits(&world), bytes(&released(&world))), (0, 0));
    // It ends, and they go.
    wait_for_rest(&world);
    assert_eq!(splits(&world), BLOCKS as u64);
}

#[test]
fn a_busy_program_is_looked_at_more_rarely() {
    let (mut world, free) = sparse(8);
    let after = world.fake().tunables().sparse_ms.get();
    let busy = |world: &mut World, ms: u64| {
        for _ in 0..ms / 300 {
            let object = world.alloc(20).unwrap();
            world.free(object, false);
            calm(world);
        }
    };
    busy(&mut world, 5 * after - 600);
    assert_eq!(splits(&world), 0);
    busy(&mut world, 6 * after);
    // One pageblock has the objects of 20 bytes.
    assert!(bytes(&released(&world)) >= free / BLOCKS * (BLOCKS - 1));
}

#[test]
fn what_the_last_windows_peak_wants_again_stays() {
    let (mut world, _) = sparse(8);
    wait(&world, 600);
    let burst = 2 * PAGEBLOCK / RUN;
    let held = world.held.len();
    for _ in 0..30 {
        runs(&mut world, burst);
        (0..burst).for_each(|_| world.free(held, false));
        calm(&world);
    }
    let kept = world.audit().idle_pages * PAGE;
    assert!(kept >= burst * RUN, "{kept} bytes kept of {}", burst * RUN);
    // Once it ends, they go.
    wait_for_rest(&world);
    assert_eq!(world.audit().idle_pages, 0);
}

/// Pageblocks full of objects of 1 KiB; of every `span` bytes the first objects, of a page, stay.
fn hollow(span: usize) -> World {
    let mut world = world(true);
    (0..BLOCKS * PAGEBLOCK / 1024).for_each(|_| assert!(world.alloc(1024).is_some()));
    free_where(&mut world, |addr| addr % span >= PAGE);
    world
}

#[test]
fn pages_of_slabs_without_an_object_are_not_in_use() {
    for (span, goes) in [(8 * PAGE, true), (2 * PAGE, false)] {
        let world = hollow(span);
        wait_for_rest(&world);
        let gone = bytes(&released(&world));
        let free = BLOCKS * PAGEBLOCK / span * (span - PAGE);
        if goes {
            assert!(gone > free / 16 * 15, "{gone} of {free}");
            assert!(cooled(&world).len() >= BLOCKS);
        } else {
            assert_eq!(gone, 0);
        }
    }
}

#[test]
fn slab_pages_that_the_kernel_filled_up_are_found_and_reported_again() {
    let mut world = hollow(8 * PAGE);
    wait_for_rest(&world);
    let gone = bytes(&released(&world));
    world.fake().take_cooled();
    let base = base(&world);
    let all = (0..BLOCKS).map(|i| Run { addr: base + i * PAGEBLOCK, len: PAGEBLOCK });
    *world.fake().collapsed.lock().unwrap() = all.collect();
    // Something happens, and the balancer is awake.
    let block = world.alloc(100).unwrap();
    world.free(block, false);
    calm(&world);
    let again = bytes(&released(&world));
    assert!(again > gone / 16 * 15, "{again} of {gone}");
    assert!(world.fake().stats().huge_collapsed.load(Relaxed) >= BLOCKS as u64 - 1);
    wait_for_rest(&world);
}

/// There are more of them than a calm window looks at.
#[test]
fn huge_pages_in_good_use_take_no_looks_from_what_the_kernel_filled_up() {
    const GOOD: usize = 40;
    let mut world = world(true);
    (0..(GOOD + BLOCKS) * PAGEBLOCK / 1024).for_each(|_| assert!(world.alloc(1024).is_some()));
    let base = base(&world);
    let hollow = base + GOOD * PAGEBLOCK;
    free_where(&mut world, |addr| addr >= hollow && addr % (8 * PAGE) >= PAGE);
    wait_for_rest(&world);
    let gone = bytes(&released(&world));
    let all = (0..BLOCKS).map(|i| Run { addr: hollow + i * PAGEBLOCK, len: PAGEBLOCK });
    *world.fake().collapsed.lock().unwrap() = all.collect();
    let block = world.alloc(100).unwrap();
    world.free(block, false);
    calm(&world);
    let again = bytes(&released(&world));
    assert!(gone > PAGEBLOCK && again > gone / 16 * 15, "{again} of {gone}");
}

#[test]
fn before_the_balancer_sleeps_all_that_was_split_is_looked_at_and_cooled() {
    let (mut world, free) = sparse(8);
    wait_for_rest(&world);
    assert_eq!(bytes(&released(&world)), free);
    world.fake().take_cooled();
    let block = world.alloc(100).unwrap();
    world.free(block, false);
    // Of more than a few windows' looks; the last goes over all.
    let base = base(&world);
    wait(&world, 3000);
    world.fake().collapsed.lock().unwrap().push(Run { addr: base + PAGEBLOCK, len: PAGEBLOCK });
    wait_for_rest(&world);
    assert!(bytes(&released(&world)) >= free / BLOCKS);
    assert!(cooled(&world).len() >= BLOCKS, "the program may have used any of them");
}

#[test]
fn a_program_that_goes_on_wakes_the_balancer_after_a_while_and_one_at_rest_does_not() {
    let (mut world, _) = sparse(8);
    wait_for_rest(&world);
    let notices = |world: &World| world.fake().notices.load(Relaxed);
    let churn = |world: &mut World| {
        for _ in 0..600 {
            // Of no class, so that CPUs' buckets do not hold it.
            let block = world.alloc_low(PAGEBLOCK).unwrap();
            world.free(block, false);
        }
    };
    world.fake().tunables().report_threshold.set(u64::MAX);
    let before = notices(&world);
    churn(&mut world);
    assert_eq!(notices(&world), before, "khugepaged has not come by");
    world.fake().pass_ms(60_000);
    assert_eq!(notices(&world), before, "nothing happens at rest");
    churn(&mut world);
    assert_eq!(notices(&world), before + 1);
}

#[test]
fn nobody_looks_where_huge_pages_are_not_always_on() {
    let mut world = full_pageblocks(false, BLOCKS);
    let base = base(&world);
    free_where(&mut world, |addr| !((addr - base) / RUN).is_multiple_of(8));
    wait_for_rest(&world);
    assert_eq!(world.fake().take_cooled(), []);
}

/// A program that grows by objects of many sizes, and by runs, as a real one does at its start.
#[test]
fn a_growing_heap_splits_no_huge_page() {
    let mut world = world(true);
    for round in 0..400 {
        for size in [24, 100, 260, 700, 1000, 1000, 1000, 3000] {
            (0..20).for_each(|_| assert!(world.alloc(size + round % 7).is_some()));
        }
        if round % 5 == 0 {
            assert!(world.alloc(40_000 + 1000 * round).is_some());
        }
    }
    assert_eq!(splits(&world), 0);
    assert_eq!(world.fake().stats().refault_bytes.load(Relaxed), 0);
}

#[test]
fn a_program_that_switches_them_off_is_given_back_by_single_pages() {
    let (world, free) = sparse(2);
    wait(&world, 2 * world.fake().tunables().sparse_ms.get() + 600);
    assert_eq!(bytes(&released(&world)), 0, "in good use");
    // In truth its memory has come in single pages since before the heap grew.
    world.heap.reclaim().forget_huge();
    assert!(!world.fake().huge.load(Relaxed));
    world.audit();
    wait_for_rest(&world);
    // Huge pages may be there from before: what is left of them is split.
    assert_eq!((bytes(&released(&world)), splits(&world)), (free, BLOCKS as u64));
}

/// Each pageblock counts as a huge page, and the program never touched a quarter of it. So `resident` shows what is behind it.
#[test]
fn a_pageblock_that_the_kernel_gave_single_pages_gives_them_back_one_by_one() {
    for really in [false, true] {
        let mut world = world(true);
        world.fake().really.store(really, Relaxed);
        let mut untouched = Vec::new();
        for _ in 0..BLOCKS {
            runs(&mut world, PAGEBLOCK / RUN * 3 / 4);
            untouched.extend((0..PAGEBLOCK / RUN / 4).map(|_| world.heap.alloc(RUN)));
        }
        let base = base(&world);
        free_where(&mut world, |addr| !((addr - base) / RUN).is_multiple_of(2));
        let free = BLOCKS * PAGEBLOCK / RUN * 3 / 8 * RUN;
        wait_for_rest(&world);
        let idle = world.heap.audit().unwrap().idle_pages * PAGE;
        assert_eq!((bytes(&released(&world)), idle), if really { (free, 0) } else { (0, free) });
        assert!(world.fake().huge.load(Relaxed), "others may get huge pages");
        // SAFETY: runs of the heap's, which nothing else has.
        untouched.into_iter().for_each(|run| unsafe { world.heap.free(run) });
    }
}

/// In truth huge pages are there from before.
#[test]
fn what_was_never_handed_out_of_a_huge_page_goes_after_the_program_switched_them_off() {
    for rest in [0, 1] {
        let mut world = world(true);
        runs(&mut world, 6);
        let base = base(&world);
        let is_freed = move |addr: usize| (addr - base) / RUN >= rest;
        free_where(&mut world, is_freed);
        world.heap.reclaim().forget_huge();
        world.audit();
        pressure(&world, Level::Severe);
        assert_eq!(bytes(&released(&world)), PAGEBLOCK - rest * RUN);
        assert_eq!((world.audit().idle_pages, splits(&world)), (0, rest as u64));
    }
}
