//! The heap as a node: its zones' figures, what wakes the balancer, direct reclaim, and relief.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::units::{Order, PAGE, Pages};
use weir_core::pages::user_zone::MemoryKind;
use weir_core::platform::{Clock, Diagnostics};
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::budget::Room;

use crate::fake::Fake;
use crate::held::World;
use crate::pages::zones::{PRIVATE, zone_of};

const GIB: u64 = 1 << 30;

fn high() -> usize {
    Marks::of(Pages::in_bytes(GIB as usize), 250).high.bytes().0
}

/// A heap with 40 MiB of runs freed: 32 MiB and more are idle.
fn idle_world() -> World {
    let mut world = World::new(Fake::new());
    (0..40).for_each(|_| assert!(world.alloc(1 << 20).is_some()));
    world.free_all();
    world
}

/// Steps until the balancer sleeps; lets the time of dozes pass.
fn balance(world: &World, turn: &mut Turn) {
    for _ in 0..1000 {
        match world.heap.reclaim().balance_zones(turn) {
            Next::Again => {}
            Next::At(_) => world.fake().pass_ms(100),
            Next::Asleep => return,
        }
    }
    panic!("the balancer never sleeps");
}

/// A limit of `capacity` bytes, `free` of them free.
fn room(capacity: u64, free: u64) -> Room {
    Room::shared(capacity, capacity - free)
}

#[test]
fn a_reading_below_low_has_idle_memory_released_up_to_high() {
    let world = idle_world();
    let stats = world.fake().stats();
    let mut turn = Turn::default();
    world.heap.reclaim().read_room(room(GIB, GIB / 2));
    assert_eq!(world.heap.reclaim().balance_zones(&mut turn), Next::Asleep);
    let lacks = 10 << 20;
    let low = Marks::of(Pages::in_bytes(GIB as usize), 250).low.bytes().0;
    world.heap.reclaim().read_room(room(GIB, (high() - lacks) as u64));
    assert_eq!(stats.wakeups.load(Relaxed), 0, "between low and high it sleeps on");
    world.heap.reclaim().read_room(room(GIB, low as u64));
    assert_eq!(stats.wakeups.load(Relaxed), 1);
    assert_eq!(stats.wake_requests.load(Relaxed), 1, "as many as wake-ups at least");
    balance(&world, &mut turn);
    let budget = world.heap.reclaim().budget_figures();
    assert!(budget.free > budget.high && budget.free < budget.high + (3 << 20), "{budget:?}");
    let reclaimed = stats.reclaimed_pages[0].load(Relaxed) as usize * PAGE;
    assert!(reclaimed >= high() - low && reclaimed < high() - low + (3 << 20));
    assert_eq!((stats.reclaimed_pages[1].load(Relaxed), stats.direct_reclaims.load(Relaxed)), (0, 0));
}

#[test]
fn without_anything_to_reclaim_it_is_not_woken() {
    let world = World::new(Fake::new());
    let mut turn = Turn::default();
    for free in [0, 1, GIB / 1000] {
        world.heap.reclaim().read_room(room(GIB, free));
        assert_eq!(world.heap.reclaim().balance_zones(&mut turn), Next::Asleep);
    }
    assert_eq!(world.fake().stats().wakeups.load(Relaxed), 0);
}

#[test]
fn allocations_wake_the_balancer_below_low_and_reclaim_by_themselves_below_min() {
    // What is idle lies in depots: a new block's exchange for idle pages finds nothing.
    let mut world = World::new(Fake::new());
    for size in [100, 200, 300, 400, 500, 640, 800, 1200, 1600, 2400, 3200] {
        (0..1024.min((512 << 10) / size)).for_each(|_| assert!(world.alloc(size).is_some()));
    }
    world.free_all();
    assert!(world.audit().depot_objects > 5000);
    let marks = Marks::of(Pages::in_bytes(GIB as usize), 250);
    world.heap.reclaim().read_room(room(GIB, marks.low.bytes().0 as u64 + (6 << 20)));
    // All of a block counts before it is touched.
    assert!(world.alloc(5 << 20).is_some());
    assert_eq!(world.fake().stats().wake_requests.load(Relaxed), 0);
    assert!(world.alloc(5 << 20).is_some());
    let counts = |world: &World| {
        let stats = world.fake().stats();
        [&stats.wake_requests, &stats.wakeups, &stats.direct_reclaims].map(|counter| counter.load(Relaxed))
    };
    assert_eq!(counts(&world), [1, 1, 0]);
    assert!(world.alloc(5 << 20).is_some());
    assert_eq!(counts(&world), [2, 1, 0], "it is awake");
    // There is no balancer, and the next reading is bad.
    world.heap.reclaim().read_room(room(GIB, (marks.min / 2).bytes().0 as u64));
    let depots = world.audit().depot_objects;
    assert!(world.alloc(5 << 20).is_some());
    assert_eq!(counts(&world)[2], 1);
    assert!(world.audit().depot_objects < depots);
    let stats = world.fake().stats();
    let reclaimed = stats.reclaimed_pages[1].load(Relaxed);
    assert!((1..=2 * 512).contains(&reclaimed), "{reclaimed}: what it takes, 2 MiB at most, and a pageblock");
    assert!(stats.scanned_pages[1].load(Relaxed) >= reclaimed);
}

#[test]
fn the_estimate_follows_what_is_released_here() {
    let world = idle_world();
    world.heap.reclaim().read_room(room(GIB, GIB / 2));
    let before = world.heap.reclaim().budget_figures();
    let released = world.heap.purge();
    assert!(released > 0);
    assert_eq!(world.heap.reclaim().budget_figures().free, before.free + released);
}

/// Huge pages of the system's pool are in no limit of memory: the budget gains nothing by them, and who wants memory gets none.
#[test]
fn huge_pages_of_the_pool_are_no_memory_of_normal() {
    let world = World::new(Fake::new());
    let heap = &world.heap;
    let (zone, _) = zone_of(heap, 8, MemoryKind { huge: true, ..PRIVATE }, NonNull::from(world.fake()));
    let idle = || heap.pages().zone_usage(&zone).idle;
    let fill = || {
        let run = heap.zones().take(&zone, Pages(512), Order::PAGE).unwrap();
        heap.pages().zone_give(&zone, heap.pages().zone_addr(&zone, run), Pages(512)).unwrap();
    };
    fill();
    heap.reclaim().read_room(room(GIB, GIB / 2));
    let free = heap.reclaim().budget_figures().free;
    assert!(heap.purge() >= 2 << 20 && idle().is_zero());
    assert_eq!(heap.reclaim().budget_figures().free, free);
    // What the next reading does not show either is no news of others.
    assert_eq!(heap.reclaim().read_room(room(GIB, GIB / 2)), 0);
    fill();
    heap.reclaim().read_room(room(GIB, 0));
    assert_eq!(world.fake().stats().wakeups.load(Relaxed), 0, "there is nothing to reclaim");
    balance(&world, &mut Turn::default());
    assert_eq!(idle(), Pages(512));
    heap.pages().remove_zone(&zone);
}

#[test]
fn what_is_idle_in_a_zone_of_the_programs_alone_wakes_the_balancer() {
    let world = World::new(Fake::new());
    let heap = &world.heap;
    let (zone, _) = zone_of(heap, 8, PRIVATE, NonNull::from(world.fake()));
    let run = heap.zones().take(&zone, Pages(1024), Order::PAGE).unwrap();
    heap.pages().zone_give(&zone, heap.pages().zone_addr(&zone, run), Pages(1024)).unwrap();
    heap.reclaim().read_room(room(GIB, 0));
    assert_eq!(world.fake().stats().wakeups.load(Relaxed), 1);
    balance(&world, &mut Turn::default());
    assert_eq!(heap.pages().zone_usage(&zone).idle, Pages::ZERO);
    heap.pages().remove_zone(&zone);
}

#[test]
fn caches_may_grow_above_high_and_not_between_pressure_and_relief() {
    let world = World::new(Fake::new());
    assert!(world.heap.reclaim().may_grow(1 << 30), "nothing is known, nothing limits");
    world.heap.reclaim().read_room(room(GIB, (high() + (1 << 20)) as u64));
    assert!(world.heap.reclaim().may_grow((1 << 20) - PAGE) && !world.heap.reclaim().may_grow(1 << 20));
    world.heap.reclaim().read_room(room(GIB, GIB / 2));
    assert!(world.heap.reclaim().may_grow(1 << 20));
    world.heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
    assert_eq!(world.heap.reclaim().budget_figures().level, Level::Some);
    assert!(!world.heap.reclaim().may_grow(0));
    // Half of the hold: an event begins it anew.
    world.fake().pass_ms(1000);
    world.heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    world.fake().pass_ms(1999);
    world.heap.reclaim().relieve_if_due();
    assert_eq!((world.heap.reclaim().budget_figures().level, world.heap.reclaim().may_grow(0)), (Level::Severe, false));
    // It is over, but the balance has not returned.
    world.fake().pass_ms(1);
    world.heap.reclaim().read_room(room(GIB, 0));
    world.heap.reclaim().relieve_if_due();
    assert!(!world.heap.reclaim().may_grow(0) && world.fake().stats().reliefs.load(Relaxed) == 0);
    world.heap.reclaim().read_room(room(GIB, GIB / 2));
    world.heap.reclaim().relieve_if_due();
    assert!(world.heap.reclaim().may_grow(0));
    let stats = world.fake().stats();
    assert_eq!((stats.reliefs.load(Relaxed), stats.pressure_level.load(Relaxed)), (1, 0));
}

/// Between low and high nothing else wakes the balancer, and relief would be waited for without end.
#[test]
fn relief_that_waits_for_the_balance_asks_for_it() {
    let world = idle_world();
    let mut turn = Turn::default();
    world.heap.reclaim().note_pressure(Level::Some, Cause::Limit);
    world.fake().pass_ms(2000);
    world.heap.reclaim().read_room(room(GIB, (high() - (10 << 20)) as u64));
    assert!(!world.heap.reclaim().is_balancer_asked());
    world.heap.reclaim().relieve_if_due();
    assert!(world.heap.reclaim().is_balancer_asked() && world.heap.reclaim().relief_due().is_some());
    balance(&world, &mut turn);
    world.heap.reclaim().relieve_if_due();
    assert_eq!((world.heap.reclaim().relief_due(), world.fake().stats().reliefs.load(Relaxed)), (None, 1));
}

#[test]
fn a_calm_window_brings_relief_as_well() {
    let world = World::new(Fake::new());
    world.heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
    assert_eq!(world.fake().stats().pressure_level.load(Relaxed), 1);
    let due = world.heap.reclaim().relief_due();
    assert!(due > Some(world.fake().now()) && !world.heap.reclaim().is_relief_awaited(), "{due:?}");
    world.fake().pass_ms(3000);
    world.heap.reclaim().balance_calm();
    assert_eq!(world.fake().stats().reliefs.load(Relaxed), 1);
    assert_eq!(world.heap.reclaim().relief_due(), None);
}

#[test]
fn the_hard_limit_is_a_budget_too_and_the_tightest_counts() {
    let mut world = World::new(Fake::new());
    world.fake().tunables().hard_limit.set(64 << 20);
    let budget = world.heap.reclaim().budget_figures();
    assert_eq!((budget.capacity, budget.resident), (64 << 20, 0));
    assert!(world.alloc(40 << 20).is_some());
    let budget = world.heap.reclaim().budget_figures();
    assert!(budget.resident >= 40 << 20 && budget.resident < 42 << 20, "{budget:?}");
    assert!(world.heap.reclaim().may_grow(8 << 20) && !world.heap.reclaim().may_grow(24 << 20));
    // The machine is fuller than that.
    world.heap.reclaim().read_room(room(4 * GIB, 1 << 20));
    assert_eq!(world.heap.reclaim().budget_figures().capacity, 4 << 30);
    // A limit below what is in use.
    world.heap.reclaim().read_room(room(4 * GIB, 4 * GIB));
    world.fake().tunables().hard_limit.set(1 << 20);
    assert_eq!(world.heap.reclaim().budget_figures().free, 0);
    assert!(!world.heap.reclaim().may_grow(0));
}

#[test]
fn a_full_locked_zone_neither_keeps_the_balancer_awake_nor_relief_away() {
    let world = World::new(Fake::new());
    let pinned = MemoryKind { reported: false, ..PRIVATE };
    let (zone, _) = zone_of(&world.heap, 2, pinned, NonNull::from(world.fake()));
    let run = world.heap.zones().take(&zone, Pages(1024), Order::PAGE).unwrap();
    assert!(world.heap.zones().take(&zone, Pages(1), Order::PAGE).is_err());
    assert_eq!(world.fake().stats().wake_requests.load(Relaxed), 0, "no cache lies there that could give");
    let mut turn = Turn::default();
    assert_eq!(world.heap.reclaim().balance_zones(&mut turn), Next::Asleep, "nothing of it can be reclaimed");
    world.heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
    world.fake().pass_ms(3000);
    world.heap.reclaim().relieve_if_due();
    assert_eq!(world.fake().stats().reliefs.load(Relaxed), 1);
    world.heap.pages().zone_give(&zone, world.heap.pages().zone_addr(&zone, run), Pages(1024)).unwrap();
    world.heap.pages().remove_zone(&zone);
}

#[test]
fn a_large_request_falls_back_to_the_zone_below_4_gib() {
    use crate::fake::Call;
    let mut world = World::new(Fake::new());
    world.may_fail = true;
    let low = world.alloc_low(1 << 20).unwrap();
    world.free(low, false);
    // There is no more address space, and NORMAL has nothing.
    world.fake().fail(Call::MapAt, u64::MAX);
    let block = world.heap.alloc(512 << 10);
    assert!(!block.is_null() && (block as usize) < 4 << 30, "{block:?}");
    // SAFETY: allocated just now.
    unsafe { world.heap.free(block) };
    assert!(world.alloc(64).is_none(), "slabs lie in NORMAL alone");
    world.fake().fail_nothing();
}

#[test]
fn a_limit_of_less_than_a_page_is_a_limit() {
    let world = World::new(Fake::new());
    world.heap.reclaim().read_room(room(1, 0));
    let figures = world.heap.reclaim().budget_figures();
    assert_eq!((figures.capacity, figures.free), (PAGE, 0));
    assert!(!world.heap.reclaim().may_grow(0), "no cache grows");
}

#[test]
fn what_no_zone_can_serve_is_refused_without_reclaim() {
    let heap = weir_core::heap::Heap::new(Fake::new());
    heap.platform().tunables().hard_limit.set(16 << 20);
    let (zone, _) =
        crate::pages::zones::zone_of(&heap, 2, crate::pages::zones::PRIVATE, std::ptr::NonNull::from(heap.platform()));
    for (pages, align) in [(0, 0), (1025, 0), (usize::MAX, 0), (1, 11), (1, u32::MAX)] {
        assert!(heap.zones().take(&zone, Pages(pages), Order(align)).is_err());
    }
    let stats = heap.platform().stats();
    assert_eq!((stats.direct_reclaims.load(Relaxed), stats.wake_requests.load(Relaxed)), (0, 0));
    heap.pages().remove_zone(&zone);
}

#[test]
fn the_policy_of_balance_is_the_one_that_is_set() {
    let mut world = idle_world();
    let (zone, _) = zone_of(&world.heap, 1, PRIVATE, NonNull::from(world.fake()));
    let run = world.heap.zones().take(&zone, Pages(512), Order::PAGE).unwrap();
    world.alloc_low(1 << 20).unwrap();
    let mut turn = Turn::default();
    // The zone of 256 MiB below 4 GiB is balanced. NORMAL is for one page, and not for a block of eight. Of a large NORMAL
    // the other zone is less than a quarter of all pages, of a small one a third.
    let (large, small) = (16 * GIB, GIB / 2);
    for (policy, capacity, wakes) in [(0, large, 0), (1, large, 1), (2, large, 1), (2, small, 0), (1, small, 1)] {
        world.fake().tunables().balance_policy.set(policy);
        let high = Marks::of(Pages::in_bytes(capacity as usize), 250).high.bytes().0;
        world.heap.reclaim().read_room(room(capacity, (high + 4 * PAGE) as u64));
        let before = world.fake().stats().wakeups.load(Relaxed);
        // A full zone of the program's asks for a block of its order.
        assert!(world.heap.zones().take(&zone, Pages(8), Order::PAGE).is_err());
        assert_eq!(world.fake().stats().wakeups.load(Relaxed) - before, wakes, "policy {policy} of {capacity} bytes");
        balance(&world, &mut turn);
    }
    world.heap.pages().zone_give(&zone, world.heap.pages().zone_addr(&zone, run), Pages(512)).unwrap();
    world.heap.pages().remove_zone(&zone);
}

#[test]
fn what_normal_gains_is_what_was_released_and_not_what_moved() {
    // With pages of the system's that are longer than the heap's some of it cannot go, and the balancer sleeps all the same.
    for unit in [PAGE, 64 << 10] {
        let mut fake = Fake::new();
        fake.unit = unit;
        // What is idle lies in depots: it moves to the zones first.
        let mut world = World::new(fake);
        for size in [100, 200, 400, 800, 1600, 3200] {
            (0..2000).for_each(|_| assert!(world.alloc(size).is_some()));
        }
        world.free_all();
        world.heap.reclaim().read_room(room(GIB, 0));
        balance(&world, &mut Turn::default());
        let stats = world.fake().stats();
        let released = stats.given_back.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>();
        assert!(released > 0);
        assert_eq!(stats.reclaimed_pages[0].load(Relaxed), released / PAGE as u64);
    }
}
