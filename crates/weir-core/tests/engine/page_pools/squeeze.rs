//! Pools under pressure: the window in which nothing stays idle, and whose task it is.

use super::*;
use weir_core::base::time::Nanos;
use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::budget::Room;

#[test]
fn a_pressure_event_takes_what_is_idle_and_releases_it() {
    for level in [Level::Some, Level::Severe] {
        let mut world = World::new(&[PoolSpec::default(), PoolSpec::default()]);
        let held = world.get(0, 100).unwrap();
        world.fill(0, 1000);
        world.fill(1, 1000);
        world.released();
        world.pressure(level);
        assert_eq!((world.idle(0), world.idle(1)), (0, 0));
        assert!(world.released() >= 2000 * PAGE);
        let stats = world.stats(0);
        assert_eq!((stats.squeezes, stats.squeezed_pages, stats.in_flight_pages), (1, 1000, 112));
        world.audit();
        // Taken anew: that is what the squeeze cost.
        world.fake().pass_ms(11);
        world.fill(0, 1200);
        assert_eq!(world.stats(0).misses_after_squeeze, 1000);
        world.put(0, &[held]);
    }
}

#[test]
fn a_zone_that_is_low_is_one_event_however_often_a_goal_comes_by() {
    const GIB: u64 = 1 << 30;
    let mut world = World::new(&[PoolSpec { max_idle_pages: Some(8000), ..PoolSpec::default() }]);
    world.fill(0, 8000);
    assert_eq!(world.idle(0), 8000);
    let marks = Marks::of(Pages::in_bytes(GIB as usize), 250);
    // Each scan takes what is missing from low to high, a small part of what is idle.
    world.heap.reclaim().read_room(Room::shared(GIB, GIB - marks.low.bytes().0 as u64));
    let mut turn = Turn::default();
    while world.heap.reclaim().balance_zones(&mut turn) == Next::Again {}
    assert!(world.idle(0) < 8000);
    assert_eq!(world.stats(0).squeezes, 1);
}

#[test]
fn in_the_window_a_put_leaves_nothing_and_each_event_extends_it() {
    let mut world = World::new(&[PoolSpec::default()]);
    let long = world.get(0, 1).unwrap();
    world.pressure(Level::Some);
    world.fake().pass_ms(9);
    world.fill(0, 50);
    assert_eq!((world.idle(0), world.stats(0).squeezed_pages), (0, 50));
    world.pressure(Level::Some);
    world.fake().pass_ms(9);
    world.fill(0, 50);
    assert_eq!((world.idle(0), world.stats(0).squeezed_pages), (0, 100));
    assert_eq!(world.stats(0).squeezes, 2, "counted once an event");
    world.fake().pass_ms(1);
    world.fill(0, 50);
    assert_eq!(world.idle(0), 50, "the window has passed");
    // A longer window for this pool counts at once, from the same event.
    world.pools[0].0.set_squeeze_ms(Some(20));
    world.fill(0, 1);
    assert_eq!(world.idle(0), 0);
    world.put(0, &[long]);
}

#[test]
fn what_puts_give_up_in_a_window_is_released_10_ms_later_in_one_go() {
    let mut world = World::new(&[PoolSpec::default()]);
    let pages: Vec<usize> = (0..1000).map(|_| world.get(0, 1).unwrap()).collect();
    world.pressure(Level::Some);
    world.fake().pass_ms(5);
    world.released();
    pages.iter().for_each(|&page| world.put(0, &[page]));
    assert_eq!((world.idle(0), world.released()), (0, 0), "a put makes no system call for it");
    let due = world.heap.page_pools().due().unwrap();
    assert_eq!(due, world.fake().now() + Nanos(10_000_000));
    world.fake().pass_ms(10);
    world.balancer();
    assert!(world.released() >= 1000 * PAGE);
    assert_eq!(world.heap.page_pools().due(), None);
}

#[test]
fn a_pool_that_is_not_squeezed_keeps_its_pages_under_pressure() {
    let mut world = World::new(&[PoolSpec { squeeze_ms: Some(0), ..PoolSpec::default() }]);
    world.fill(0, 500);
    world.pressure(Level::Severe);
    world.fill(0, 500);
    assert_eq!((world.idle(0), world.stats(0).squeezes), (500, 0));
    world.heap.purge();
    assert_eq!((world.idle(0), world.stats(0).squeezes), (0, 0), "malloc_trim takes all that is idle");
}

/// An I/O buffer is not idle because its queue is quiet: a request may be under way below for as long as it likes. For
/// this corruption two ublk libraries took the release of idle buffers out again.
#[test]
fn the_ring_is_silent_is_not_its_buffers_are_idle() {
    let mut world = World::new(&[PoolSpec::default(), TENDED]);
    for pool in 0..2 {
        // A page, a run, a run of more than a huge page; and as much that is idle.
        for pages in [1, 1, 8, 8, 600, 600] {
            world.get(pool, pages).unwrap();
        }
        let idle: Vec<usize> = world.pools[pool].1.keys().copied().step_by(2).collect();
        world.put(pool, &idle);
    }
    world.fake().tunables().set("hard_limit", "64M").unwrap();
    for round in 0..4 {
        // No get and no put from here on. The platform refuses a release of what is held.
        world.fake().pass_ms(1000);
        world.pressure(if round % 2 == 0 { Level::Some } else { Level::Severe });
        world.balancer();
        world.pools.iter().for_each(|(pool, _)| _ = world.heap.page_pools().tend(pool));
        world.calm();
        world.heap.reclaim().balance_rest();
        world.heap.purge();
        assert!(world.heap.alloc(65 << 20).is_null(), "direct reclaim takes all that is idle");
        world.audit();
        for pool in 0..2 {
            assert_eq!(world.idle(pool), 0);
            assert!(world.stats(pool).in_flight_pages > 600);
        }
    }
}

#[test]
fn the_program_is_the_owner_of_a_pool_that_it_tends() {
    let mut world = World::new(&[TENDED]);
    world.fill(0, 500);
    world.pressure(Level::Severe);
    world.balancer();
    assert_eq!(world.idle(0), 500, "the event frees nothing: the owner does");
    let notices = world.fake().notices.load(Relaxed);
    world.released();
    assert_eq!(world.heap.page_pools().tend(&world.pools[0].0), 500);
    assert_eq!((world.idle(0), world.stats(0).squeezes), (0, 1));
    assert_eq!(world.released(), 0, "the owner makes no system call but the one that wakes the balancer");
    assert!(world.fake().notices.load(Relaxed) > notices);
    assert_eq!(world.heap.page_pools().due(), Some(world.fake().now()), "which releases the pages at once");
    world.balancer();
    assert!(world.released() >= 500 * PAGE);
    // One that comes after the window sees that there was one.
    world.fake().pass_ms(1000);
    world.fill(0, 500);
    assert_eq!((world.heap.page_pools().tend(&world.pools[0].0), world.idle(0)), (0, 500));
    world.signal();
    world.fake().pass_ms(1000);
    assert_eq!((world.heap.page_pools().tend(&world.pools[0].0), world.idle(0)), (500, 0));
    // Where an allocation would fail otherwise, the pages are taken whoever the owner is.
    world.fill(0, 500);
    world.heap.purge();
    assert_eq!(world.idle(0), 0);
    // Its calm windows are the owner's too.
    world.fill(0, 500);
    world.pools[0].0.set_max_idle_pages(Some(20));
    world.calm();
    assert_eq!(world.idle(0), 500);
    world.heap.page_pools().tend(&world.pools[0].0);
    assert_eq!(world.idle(0), 20);
}

#[test]
fn an_owner_does_not_sleep_through_an_event_that_came_before() {
    let world = World::new(&[TENDED]);
    let pool = &world.pools[0].0;
    let now = world.fake().now();
    world.heap.page_pools().wait_for_squeeze(pool, Some(1000));
    assert_eq!(world.fake().now(), now + Nanos(1000), "there was no event: the time passed");
    world.signal();
    world.heap.page_pools().wait_for_squeeze(pool, Some(1000));
    assert_eq!(world.fake().now(), now + Nanos(1000), "it did not sleep");
    world.heap.page_pools().tend(pool);
    world.heap.page_pools().wait_for_squeeze(pool, Some(1000));
    assert_eq!(world.fake().now(), now + Nanos(2000));
}
