//! The mechanisms that are reclaimed, in which order and how far, on a clock that the test moves.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use weir_core::platform::Diagnostics;

use crate::fake::{Fake, run_on_node};
use crate::held::World;

mod nodes;

pub const RUN: usize = 64 << 10;
const RUN_PAGES: usize = RUN / PAGE;
/// Free pages that a calm window leaves alone (see the balancer).
const WORTH: usize = 16;

pub fn world(huge: bool) -> World {
    let fake = Fake::new();
    fake.huge.store(huge, Relaxed);
    World::new(fake)
}

pub fn runs(world: &mut World, count: usize) {
    (0..count).for_each(|_| assert!(world.alloc(RUN).is_some()));
}

/// Ends a calm window.
pub fn calm(world: &World) {
    world.fake().pass_ms(world.fake().tunables().idle_ms.get());
    world.heap.reclaim().balance_calm();
    world.check_contents();
}

pub fn pressure(world: &World, level: Level) -> usize {
    let bytes = world.heap.reclaim().balance_pressure(level, Cause::Pressure);
    world.check_contents();
    bytes
}

pub fn released(world: &World) -> Vec<Run> {
    world.fake().take_released().concat()
}

pub fn bytes(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.len).sum()
}

fn is_whole(run: &Run) -> bool {
    run.addr.is_multiple_of(PAGEBLOCK) && run.len.is_multiple_of(PAGEBLOCK)
}

pub fn free_where(world: &mut World, which: impl Fn(usize) -> bool) {
    for addr in world.held.iter().map(|block| block.addr).filter(|&a| which(a)).collect::<Vec<_>>() {
        let i = world.held.iter().position(|block| block.addr == addr).unwrap();
        world.free(i, false);
    }
}

/// Holds `blocks` whole pageblocks' worth of runs, and nothing else.
pub fn full_pageblocks(huge: bool, blocks: usize) -> World {
    let mut world = world(huge);
    runs(&mut world, blocks * PAGEBLOCK / RUN);
    assert_eq!(world.audit().idle_pages, 0);
    world
}

#[test]
fn calm_keeps_the_last_windows_peak_and_gives_back_the_rest_in_the_next() {
    for huge in [false, true] {
        let mut world = full_pageblocks(huge, 40);
        // What a CPU holds of short runs goes with the window.
        world.fake().tunables().cache_idle_windows.set(0);
        calm(&world);
        free_where(&mut world, |_| true);
        calm(&world);
        assert_eq!(released(&world), [], "the peak of the window that ended was all of it");
        // A smaller burst: only what is above it goes.
        runs(&mut world, 10 * PAGEBLOCK / RUN);
        free_where(&mut world, |_| true);
        calm(&world);
        let idle = world.audit().idle_pages;
        assert!(idle <= 10 * PAGEBLOCK_PAGES + WORTH, "{idle} pages kept");
        assert!(idle + PAGEBLOCK_PAGES > 10 * PAGEBLOCK_PAGES, "only {idle} pages kept");
        calm(&world);
        assert!(world.audit().idle_pages <= WORTH);
        assert_eq!(bytes(&released(&world)), 40 * PAGEBLOCK);
    }
}

#[test]
fn a_steady_program_gives_nothing_back() {
    let mut world = full_pageblocks(false, 8);
    calm(&world);
    for _ in 0..10 {
        free_where(&mut world, |addr| (addr / RUN).is_multiple_of(2));
        runs(&mut world, 4 * PAGEBLOCK / RUN);
        calm(&world);
    }
    assert_eq!(released(&world), []);
}

#[test]
fn whole_pageblocks_go_first() {
    for level in [Level::None, Level::Some, Level::Severe] {
        let mut world = full_pageblocks(false, 6);
        // What a CPU holds of short runs goes with the window.
        world.fake().tunables().cache_idle_windows.set(0);
        let base = world.held.iter().map(|block| block.addr).min().unwrap();
        // Two pageblocks wholly free, one half free.
        free_where(&mut world, |addr| addr - base < 2 * PAGEBLOCK || (addr - base) / (PAGEBLOCK / 2) == 8);
        if level == Level::None {
            calm(&world);
            calm(&world);
        } else {
            pressure(&world, level);
        }
        let runs = released(&world);
        let whole = runs.iter().take_while(|run| is_whole(run)).count();
        assert_eq!(bytes(&runs[..whole]), 2 * PAGEBLOCK);
        assert!(runs[whole..].iter().all(|run| !is_whole(run)), "{runs:x?}");
        // Calm leaves what is too little to be worth a call; this is not.
        assert_eq!(bytes(&runs[whole..]), PAGEBLOCK / 2);
    }
}

#[test]
fn huge_pages_in_good_use_are_split_under_severe_pressure_only() {
    let mut world = full_pageblocks(true, 4);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    // Half of each pageblock free; objects in a partial slab on a fifth.
    free_where(&mut world, |addr| ((addr - base) / RUN).is_multiple_of(2));
    (0..3).for_each(|_| calm(&world));
    assert_eq!(released(&world), []);
    assert_eq!(pressure(&world, Level::Some), 0);
    assert_eq!(released(&world), []);
    assert_eq!(pressure(&world, Level::Severe), 2 * PAGEBLOCK);
    assert_eq!(world.audit().idle_pages, 0);
    assert_eq!(world.fake().stats().huge_split.load(Relaxed), 4);
}

#[test]
fn a_huge_page_in_little_use_is_split_at_rest_where_memory_is_limited() {
    for (every, goes) in [(8, true), (2, false)] {
        let mut world = full_pageblocks(true, 4);
        let base = world.held.iter().map(|block| block.addr).min().unwrap();
        free_where(&mut world, |addr| !((addr - base) / RUN).is_multiple_of(every));
        let free = 4 * PAGEBLOCK - world.held.len() * RUN;
        (0..8).for_each(|_| calm(&world));
        assert_eq!(world.audit().idle_pages * PAGE, free, "in calm times huge pages are kept");
        world.fake().tunables().report.set(0);
        assert_eq!(world.heap.reclaim().balance_rest(), 0);
        world.fake().tunables().report.set(1);
        assert_eq!(world.heap.reclaim().balance_rest(), if goes { free } else { 0 });
    }
}

#[test]
fn a_huge_page_in_little_use_is_split_under_some_pressure() {
    let mut world = full_pageblocks(true, 4);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    free_where(&mut world, |addr| !((addr - base) / RUN).is_multiple_of(8));
    (0..3).for_each(|_| calm(&world));
    assert_eq!(released(&world), []);
    assert_eq!(pressure(&world, Level::Some), 4 * PAGEBLOCK / 8 * 7);
}

/// Holds `blocks` pageblocks' worth of objects of 1 KiB, every second page's freed.
pub fn half_free_slabs(huge: bool, blocks: usize) -> World {
    let mut world = world(huge);
    (0..blocks * PAGEBLOCK / 1024).for_each(|_| assert!(world.alloc(1024).is_some()));
    free_where(&mut world, |addr| (addr / PAGE).is_multiple_of(2));
    world
}

#[test]
fn pages_inside_slabs_wait_for_severe_pressure_where_huge_pages_back_them() {
    let world = half_free_slabs(true, 4);
    (0..5).for_each(|_| calm(&world));
    assert_eq!(bytes(&released(&world)), 0);
    assert_eq!(pressure(&world, Level::Some), 0, "the huge pages are in good use");
    // Nothing has changed since both have looked.
    let given = pressure(&world, Level::Severe);
    assert!(given >= 2 * PAGEBLOCK - PAGEBLOCK / 8, "{given}");
    assert_eq!(pressure(&world, Level::Severe), 0);
}

#[test]
#[cfg(debug_assertions)]
fn a_look_at_slabs_costs_what_has_changed() {
    let visits = |world: &World, f: &dyn Fn(&World)| {
        let before = world.heap.figures().pageblock_visits();
        f(world);
        world.heap.figures().pageblock_visits() - before
    };
    for huge in [false, true] {
        let costs = [4, 16].map(|blocks| {
            let mut world = half_free_slabs(huge, blocks);
            // Looks for huge pages in little use, or for where one is due, go over pageblocks, not slabs.
            world.fake().tunables().sparse_percent.set(0);
            world.fake().tunables().huge_blocks.set(0);
            let all = visits(&world, &|world| (0..5).for_each(|_| calm(world)));
            let one = world.held.len() / 2;
            world.free(one, false);
            let little = visits(&world, &|world| (0..5).for_each(|_| calm(world)));
            (all as f64 / blocks as f64, little as f64)
        });
        let [small, large] = costs;
        assert!(large.0 <= small.0 * 1.5 && large.1 <= small.1 * 1.5 + 50.0, "huge {huge}: {costs:?}");
    }
}

#[test]
fn the_untouched_part_of_a_huge_page_goes_back_with_the_touched() {
    let mut world = world(true);
    let run = world.alloc(RUN).unwrap();
    assert_eq!(world.audit().idle_pages, PAGEBLOCK_PAGES - RUN_PAGES);
    world.free(run, false);
    assert_eq!(pressure(&world, Level::Some), PAGEBLOCK);
    assert!(released(&world).iter().all(is_whole));
}

#[test]
fn the_untouched_part_of_a_huge_page_that_a_run_grows_into_is_idle() {
    let mut world = full_pageblocks(true, 3);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    let last = world.held.iter().position(|block| block.addr == base + 3 * PAGEBLOCK - RUN).unwrap();
    world.realloc(last, RUN + 4 * PAGE);
    assert!(world.held.iter().any(|block| block.addr == base + 3 * PAGEBLOCK - RUN), "it grew where it was");
    assert_eq!(world.audit().idle_pages, PAGEBLOCK_PAGES - 4);
    // It goes as one huge page.
    free_where(&mut world, |addr| addr == base + 3 * PAGEBLOCK - RUN);
    pressure(&world, Level::Some);
    assert!(released(&world).iter().any(|run| is_whole(run) && run.addr == base + 3 * PAGEBLOCK));
    assert_eq!(world.fake().stats().huge_split.load(Relaxed), 0);
}

#[test]
fn frees_alone_are_no_demand_for_a_depot() {
    let mut world = world(false);
    (0..20_000).for_each(|_| assert!(world.alloc(64).is_some()));
    world.free_all();
    // The rest went to slabs at once, so that it comes back in order.
    let kept = world.audit().depot_objects;
    assert!((1024..1024 + 64).contains(&kept), "{kept} of 20,000 kept");
    calm(&world);
    assert_eq!(world.audit().depot_objects, 0);
}

#[test]
fn a_depot_keeps_the_batch_that_was_wanted() {
    let mut world = world(false);
    (0..20_000).for_each(|_| assert!(world.alloc(64).is_some()));
    world.free_all();
    (0..1000).for_each(|_| assert!(world.alloc(64).is_some()));
    world.free_all();
    calm(&world);
    let kept = world.audit().depot_objects;
    // What the CPU's own bucket served of the batch (256 objects) is not the depot's.
    assert!((1000 - 256..=1000 + 64).contains(&kept), "{kept} kept");
    // What nobody takes in a window goes at its end.
    (0..600).for_each(|_| assert!(world.alloc(64).is_some()));
    world.free_all();
    calm(&world);
    let kept = world.audit().depot_objects;
    assert!((600 - 256..=600 + 64).contains(&kept), "{kept} kept");
    calm(&world);
    assert_eq!(world.audit().depot_objects, 0);
}

#[test]
fn severe_pressure_drains_the_cpus_and_not_too_often() {
    let mut world = world(false);
    let interval = world.fake().tunables().severe_interval_ms.get();
    let drains = |world: &World| world.fake().stats().drains.load(Relaxed);
    let cached = |world: &mut World| {
        let block = world.alloc(64).unwrap();
        world.free(block, false);
        world.audit().cpu_objects
    };
    assert!(cached(&mut world) > 0);
    pressure(&world, Level::Some);
    assert_eq!(drains(&world), 0);
    pressure(&world, Level::Severe);
    assert_eq!((drains(&world), world.audit().cpu_objects), (1, 0));
    // One stop for all CPUs, and never none: what it is for, `crates/weir-models/tests/caches/cpu_cache/main.rs` shows.
    assert_eq!(world.fake().fences.load(Relaxed), 1);
    assert!(cached(&mut world) > 0);
    world.fake().pass_ms(interval - 1);
    pressure(&world, Level::Severe);
    assert_eq!(drains(&world), 1);
    assert!(world.audit().cpu_objects > 0);
    world.fake().pass_ms(1);
    pressure(&world, Level::Severe);
    assert_eq!((drains(&world), world.audit().cpu_objects), (2, 0));
}

#[test]
fn a_refused_fence_leaves_buckets_as_they_are() {
    let mut world = world(false);
    let block = world.alloc(64).unwrap();
    world.free(block, false);
    let cached = world.audit().cpu_objects;
    world.fake().no_fence.store(true, Relaxed);
    pressure(&world, Level::Severe);
    world.heap.purge();
    assert!(cached > 0);
    assert_eq!(world.audit().cpu_objects, cached);
    world.fake().no_fence.store(false, Relaxed);
    world.heap.purge();
    assert_eq!(world.audit().cpu_objects, 0);
}

/// A sparse table that is allocated, freed and allocated again must not become resident by being made zero.
#[test]
fn a_long_block_that_was_used_before_is_made_zero_by_releasing_it() {
    let mut world = world(false);
    const LONG: usize = 65 << 20;
    let first = world.alloc_zeroed(LONG).unwrap();
    world.free(first, false);
    assert_eq!(released(&world), []);
    world.alloc_zeroed(LONG).unwrap();
    assert_eq!(bytes(&released(&world)), LONG);
}

#[test]
fn a_quiet_program_is_drained_once_and_the_balancer_sleeps() {
    let mut world = world(false);
    let block = world.alloc(64).unwrap();
    world.free(block, false);
    let windows = (0..20).take_while(|_| {
        world.fake().pass_ms(300);
        world.heap.reclaim().balance_calm()
    });
    assert!(windows.count() < 10);
    assert_eq!(world.fake().stats().drains.load(Relaxed), 1);
    assert_eq!(world.audit().cpu_objects, 0);
}

/// Slow paths that are enough for a look at the clock.
fn slow_paths(world: &mut World) {
    world.past_buckets(|world| {
        for _ in 0..600 {
            let i = world.alloc(RUN).unwrap();
            world.free(i, false);
        }
    });
}

#[test]
fn a_window_is_over_once_a_shorter_one_would_be() {
    let mut world = world(false);
    world.fake().tunables().background.set(0);
    world.fake().tunables().idle_ms.set(3_600_000);
    slow_paths(&mut world);
    runs(&mut world, 512);
    world.past_buckets(|world| (0..500).for_each(|_| world.free(0, false)));
    let idle = world.audit().idle_pages;
    world.fake().tunables().idle_ms.set(300);
    for _ in 0..3 {
        world.fake().pass_ms(300);
        slow_paths(&mut world);
    }
    let left = world.audit().idle_pages;
    assert!(left < idle / 4, "{left} of {idle} pages are idle");
}

#[test]
fn without_a_background_thread_slow_paths_end_the_window() {
    let mut world = world(false);
    world.fake().tunables().background.set(0);
    runs(&mut world, 512);
    world.past_buckets(|world| (0..500).for_each(|_| world.free(0, false)));
    let idle = world.audit().idle_pages;
    slow_paths(&mut world);
    assert_eq!(world.audit().idle_pages, idle, "the window is not over");
    for _ in 0..3 {
        world.fake().pass_ms(world.fake().tunables().idle_ms.get());
        slow_paths(&mut world);
    }
    let left = world.audit().idle_pages;
    assert!(left < idle / 4, "{left} of {idle} pages are idle");
}

#[test]
fn an_allocation_goes_to_the_fullest_pageblock() {
    let mut world = full_pageblocks(false, 4);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    let place = move |addr: usize| ((addr - base) / PAGEBLOCK, (addr - base) % PAGEBLOCK / RUN);
    // Of 32 runs, pageblock 1 has 10 free, pageblock 3 has 20, pageblock 0 has 31; pageblock 2 is full.
    let is_freed = |(block, run): (usize, usize)| [run != 5, run >= 22, false, run < 20][block];
    world.past_buckets(|world| free_where(world, |addr| is_freed(place(addr))));
    let order: Vec<usize> = (0..61).map(|_| world.alloc(RUN).map(|i| place(world.held[i].addr).0).unwrap()).collect();
    let expected: Vec<usize> = [(1, 10), (3, 20), (0, 31)].iter().flat_map(|&(b, n)| vec![b; n]).collect();
    assert_eq!(order, expected);
}

#[test]
fn backed_pageblocks_go_before_reported_ones() {
    let mut world = world(false);
    let (first, second) = (world.alloc(PAGEBLOCK).unwrap(), world.alloc(PAGEBLOCK).unwrap());
    let addr = world.held[second].addr;
    world.free(first, false);
    world.heap.purge();
    assert_eq!(bytes(&released(&world)), PAGEBLOCK);
    free_where(&mut world, |_| true);
    let again = world.alloc(PAGEBLOCK).unwrap();
    assert_eq!(world.held[again].addr, addr);
}

#[test]
fn no_more_than_a_batch_is_isolated() {
    for batch in [1usize, 3, 16] {
        let mut world = full_pageblocks(false, 40);
        world.fake().tunables().report_batch.set(batch as u64);
        world.past_buckets(|world| free_where(world, |_| true));
        pressure(&world, Level::Some);
        let calls = world.fake().take_released();
        assert!(calls.iter().all(|runs| bytes(runs) <= batch * PAGEBLOCK));
        assert_eq!(calls.len(), 40usize.div_ceil(batch));
    }
}

#[test]
fn nothing_goes_back_where_reports_are_off() {
    let mut world = full_pageblocks(false, 4);
    world.fake().tunables().report.set(0);
    free_where(&mut world, |_| true);
    (0..3).for_each(|_| calm(&world));
    assert_eq!(pressure(&world, Level::Severe), 0);
    assert_eq!((world.heap.purge(), released(&world)), (0, vec![]));
}

#[test]
fn blocks_get_huge_pages_once_some_before_them_were_filled() {
    let mut world = World::new(Fake::new());
    let blocks: Vec<_> = (0..8).map(|_| world.alloc(6 << 20).unwrap()).collect();
    // On this platform all of a block counts as filled; three of them had to be seen so.
    let advised: Vec<_> = world.fake().advised.lock().unwrap().iter().map(|run| run.addr).collect();
    let wanted: Vec<_> = blocks[3..].iter().map(|&block| world.held[block].addr).collect();
    assert_eq!(advised, wanted);
}
