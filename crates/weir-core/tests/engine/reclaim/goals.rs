//! The goals of reclaim: what they have in common, and what they leave.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::level::Level;
use weir_core::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use weir_core::platform::Diagnostics;

use crate::fake::Call;
use crate::held::World;
use crate::reclaim::order::{RUN, calm, full_pageblocks, pressure, runs};

/// Bytes of the block that is retained.
const RETAINED: usize = 5 * PAGEBLOCK;

/// A heap with something idle of each kind: whole pageblocks, objects in depots, a retained block.
fn idle_of_each_kind() -> World {
    let mut world = full_pageblocks(false, 8);
    (0..20_000).for_each(|_| assert!(world.alloc(100).is_some()));
    assert!(world.alloc(RETAINED).is_some());
    world.free_all();
    let audit = world.audit();
    assert!(audit.depot_objects > 0 && audit.idle_pages > 0 && world.fake().resident_blocks() >= RETAINED);
    world
}

#[test]
fn with_reports_off_no_goal_releases_anything() {
    let world = idle_of_each_kind();
    let blocks = world.fake().resident_blocks();
    world.fake().tunables().report.set(0);
    world.fake().take_released();
    assert_eq!(world.heap.purge(), 0);
    assert_eq!((world.heap.reclaim().balance_rest(), world.heap.reclaim().purge()), (0, 0));
    assert_eq!(pressure(&world, Level::Some) + pressure(&world, Level::Severe), 0);
    (0..4).for_each(|_| calm(&world));
    assert!(world.fake().take_released().is_empty());
    assert_eq!(world.fake().resident_blocks(), blocks, "a retained block stays too");
    world.fake().tunables().report.set(1);
    assert!(world.heap.purge() >= RETAINED);
    assert!(world.fake().resident_blocks() <= blocks - RETAINED);
}

#[test]
fn rest_releases_retained_blocks_and_what_depots_hold_beyond_their_working_sets() {
    let world = idle_of_each_kind();
    let blocks = world.fake().resident_blocks();
    assert!(world.heap.reclaim().balance_rest() >= RETAINED);
    assert!(world.fake().resident_blocks() <= blocks - RETAINED);
    // Estimates fade with time; at the end nothing is left.
    for _ in 0..20 {
        world.fake().pass_ms(world.fake().tunables().idle_ms.get());
        world.heap.reclaim().balance_rest();
    }
    assert_eq!(world.audit().depot_objects, 0);
}

#[test]
fn an_allocation_that_is_short_takes_no_more_from_caches_than_it_needs() {
    let mut world = idle_of_each_kind();
    assert!(world.heap.purge() > 0);
    // Objects of many sizes lie in depots, and pages are all in use.
    for size in [100, 200, 400, 800, 1600, 3200] {
        (0..2000).for_each(|_| assert!(world.alloc(size).is_some()));
    }
    world.free_all();
    world.fake().fail(Call::MapAt, u64::MAX);
    while world.heap.platform().stats().direct_reclaims.load(Relaxed) == 0 {
        assert!(world.alloc(60_000).is_some());
    }
    assert!(world.audit().depot_objects > 1000, "one cache was enough");
    world.fake().fail_nothing();
}

#[test]
fn whole_pageblocks_are_released_before_what_cpus_hold_is_taken() {
    let mut world = idle_of_each_kind();
    runs(&mut world, 8 * PAGEBLOCK / RUN);
    (0..2000).for_each(|_| assert!(world.alloc(100).is_some()));
    world.free_all();
    let before = world.audit();
    assert!(
        before.cpu_objects > 0 && before.depot_objects > 0 && before.idle_pages >= 4 * PAGEBLOCK_PAGES,
        "{before:?}"
    );
    // A block below 4 GiB cannot use what is idle in NORMAL, and the limit leaves no room beside it.
    let held = before.slab_pages + before.run_pages + before.idle_pages;
    world.fake().tunables().hard_limit.set((held * PAGE) as u64);
    world.alloc_low(2 * PAGEBLOCK).unwrap();
    let after = world.audit();
    assert!(after.idle_pages < before.idle_pages, "something had to go");
    assert_eq!((after.cpu_objects, after.depot_objects), (before.cpu_objects, before.depot_objects));
    world.fake().tunables().hard_limit.set(0);
}
