//! The refault meter on a heap, and the calm policy that learns from it, on a clock that the test moves.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::level::Level;
use weir_core::base::time::Nanos;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::platform::{Clock, Diagnostics};

use crate::held::World;
use crate::reclaim::order::{RUN, free_where, full_pageblocks, pressure, runs, world};

fn touched_again(world: &World) -> usize {
    world.fake().stats().refault_bytes.load(Relaxed) as usize
}

/// Ends calm windows of the length that the heap asks for, until `ms` have passed.
fn wait(world: &World, ms: u64) {
    let end = world.fake().now() + Nanos::of_ms(ms);
    while world.fake().now() < end {
        let window = world.heap.reclaim().calm_window().min(end - world.fake().now());
        world.fake().pass_ms(window.0.div_ceil(1_000_000));
        world.heap.reclaim().balance_calm();
    }
}

#[test]
fn what_is_taken_again_soon_is_counted_once() {
    for huge in [false, true] {
        let mut world = full_pageblocks(huge, 8);
        free_where(&mut world, |_| true);
        pressure(&world, Level::Some);
        world.fake().pass_ms(9_000);
        runs(&mut world, 2 * PAGEBLOCK / RUN);
        assert_eq!(touched_again(&world), 2 * PAGEBLOCK);
        free_where(&mut world, |_| true);
        runs(&mut world, 2 * PAGEBLOCK / RUN);
        assert_eq!(touched_again(&world), 2 * PAGEBLOCK, "it was not given back in between");
        world.fake().pass_ms(1_200);
        runs(&mut world, 6 * PAGEBLOCK / RUN);
        assert_eq!(touched_again(&world), 2 * PAGEBLOCK, "what is taken later is not counted");
    }
}

#[test]
fn fresh_memory_is_none_that_is_taken_again() {
    let mut world = full_pageblocks(false, 8);
    wait(&world, 1000);
    runs(&mut world, 8 * PAGEBLOCK / RUN);
    assert_eq!(touched_again(&world), 0);
}

#[test]
fn pages_inside_slabs_and_blocks_of_their_own_count_too() {
    let mut world = world(false);
    (0..4000).for_each(|_| assert!(world.alloc(1000).is_some()));
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    free_where(&mut world, |addr| (addr - base) % (32 << 10) >= 4096);
    pressure(&world, Level::Severe);
    let gone = world.fake().stats().given_back[1].load(Relaxed) as usize;
    (0..3500).for_each(|_| assert!(world.alloc(1000).is_some()));
    let again = touched_again(&world);
    assert!(again > gone / 2 && again <= gone, "{again} of {gone}");
    world.free_all();
    world.fake().pass_ms(20_000);
    let before = touched_again(&world);
    let block = world.alloc(8 << 20).unwrap();
    world.free(block, false);
    pressure(&world, Level::Some);
    let block = world.alloc(8 << 20).unwrap();
    assert_eq!(touched_again(&world) - before, 8 << 20);
    world.free(block, false);
}

/// A program that uses 16 MiB every `period` ms, for `ms`; what it made the system below take and give again.
pub fn pulses(world: &mut World, period: u64, ms: u64) -> (usize, usize) {
    let stats = |world: &World| world.fake().stats().given_back[0].load(Relaxed) as usize;
    let before = (stats(world), touched_again(world));
    for _ in 0..ms / period {
        runs(world, 8 * PAGEBLOCK / RUN);
        free_where(world, |_| true);
        wait(world, period);
    }
    (stats(world) - before.0, touched_again(world) - before.1)
}

#[test]
fn a_program_that_comes_back_in_steady_swings_is_let_alone_after_a_while() {
    // By default as far as what is idle is gone within two seconds; for slower swings the setting is raised.
    for (period, hold_ms, minutes) in [(700, 2_000, 2), (1_000, 2_000, 3), (3_000, 10_000, 10)] {
        steady_swings(period, hold_ms, minutes);
    }
}

fn steady_swings(period: u64, hold_ms: u64, minutes: u64) {
    let mut world = world(false);
    world.fake().tunables().hold_ms.set(hold_ms);
    let minute = 60_000;
    let (gone, again) = pulses(&mut world, period, minute / 2);
    assert!(again * 2 > gone && gone >= 2 * 8 * PAGEBLOCK, "at first it hurts: {again} of {gone}");
    assert!(world.fake().stats().patience.load(Relaxed) >= 1);
    let (gone, again) = pulses(&mut world, period, minutes * minute);
    // It tries again now and then, once in 20 s at most: no more than 5 % of what would have gone.
    let swings = (minutes * minute / period) as usize;
    assert!(again <= swings * 8 * PAGEBLOCK / 20, "{again} of {gone} bytes still come back");
    // Under pressure it goes at once nevertheless.
    runs(&mut world, 8 * PAGEBLOCK / RUN);
    free_where(&mut world, |_| true);
    assert!(pressure(&world, Level::Some) >= 7 * PAGEBLOCK);
    // Once the program is idle, it all goes, and patience is forgotten in time.
    wait(&world, minute);
    assert!(world.audit().idle_pages * PAGE <= RUN);
    wait(&world, 30 * minute);
    assert_eq!(world.fake().stats().patience.load(Relaxed), 0);
    assert_eq!(world.heap.reclaim().calm_window(), world.fake().tunables().idle_ms.ns());
}

#[test]
fn windows_are_no_longer_than_a_hold_that_was_made_shorter() {
    let mut world = world(false);
    world.fake().tunables().hold_ms.set(10_000);
    pulses(&mut world, 3_000, 120_000);
    let idle = world.fake().tunables().idle_ms.ns();
    assert!(world.heap.reclaim().calm_window() > idle);
    world.fake().tunables().hold_ms.set(2_000);
    assert_eq!(world.heap.reclaim().calm_window(), idle);
}

#[test]
fn a_program_that_comes_back_rarely_is_not_waited_for() {
    for period in [3_000, 15_000] {
        let mut world = world(false);
        let (gone, _) = pulses(&mut world, period, 300_000);
        let swings = (300_000 / period) as usize;
        assert!(gone >= (swings - 1) * 8 * PAGEBLOCK, "{gone} bytes went");
        assert_eq!(world.fake().stats().patience.load(Relaxed), 0, "in no time that it may be kept for");
    }
}

/// The blocks that a request of a server is made of. It has objects of many sizes, twice, so that depots expect them
/// again; runs, and a block mapped on its own. Then all is freed but what was there before.
fn request(world: &mut World) {
    let before: BTreeSet<usize> = world.held.iter().map(|block| block.addr).collect();
    for _ in 0..2 {
        for (size, count) in [(48, 300), (3000, 700), (20_000, 100)] {
            (0..count).for_each(|_| assert!(world.alloc(size).is_some()));
        }
        free_where(world, |addr| !before.contains(&addr));
    }
    runs(world, 2 * PAGEBLOCK / RUN);
    assert!(world.alloc(6 << 20).is_some());
    free_where(world, |addr| !before.contains(&addr));
}

/// A server that has objects on a few slabs for good.
fn server() -> World {
    let mut world = world(false);
    (0..700).for_each(|_| assert!(world.alloc(3000).is_some()));
    let kept: BTreeSet<usize> = world.held.iter().map(|block| block.addr).step_by(10).collect();
    free_where(&mut world, |addr| !kept.contains(&addr));
    world
}

/// Bytes that are idle, wherever they are.
fn idle(world: &World) -> usize {
    world.heap.figures().usage().idle
}

/// Ends windows until nothing is idle but what calm windows leave alone; how long that took, ms. The program, whose memory
/// was used last just now, may still allocate and free an object of so many bytes at once, and then every so many ms.
fn rest(world: &mut World, beat: Option<(u64, usize)>) -> u64 {
    let begun = world.fake().now();
    let passed = |world: &World| (world.fake().now() - begun).0 / 1_000_000;
    let mut next = 0;
    while idle(world) > REST {
        assert!(passed(world) <= 10_000, "{} bytes are idle after 10 s", idle(world));
        if let Some((beat, bytes)) = beat
            && passed(world) >= next
        {
            next = passed(world) + beat;
            let block = world.alloc(bytes).unwrap();
            world.free(block, false);
        }
        world.fake().pass_ms(world.heap.reclaim().calm_window().0 / 1_000_000);
        let goes_on = world.heap.reclaim().balance_calm();
        assert!(goes_on || idle(world) <= REST, "the thread sleeps, and {} bytes are idle", idle(world));
    }
    passed(world)
}

/// Bytes that may be idle at rest. They are what is too little to be worth a call, and the slabs of a few objects in CPUs'
/// buckets.
pub const REST: usize = 128 << 10;

#[test]
fn whatever_a_program_did_before_it_rests_its_memory_is_gone_two_seconds_after_its_last_use() {
    // Beats with an object of a size of its own, and of one that requests use.
    for beat in [None, Some((1000, 100)), Some((600, 3000)), Some((900, 3000))] {
        for period in [100, 333, 500, 700, 1000, 1400, 3000, 5000] {
            let mut world = server();
            for _ in 0..8 {
                request(&mut world);
                wait(&world, period);
            }
            // At any moment of a window.
            for into_window in [0, 50, 290] {
                world.fake().pass_ms(into_window);
                request(&mut world);
                world.fake().pass_ms(300 - into_window);
                world.heap.reclaim().balance_calm();
                let took = 300 - into_window + rest(&mut world, beat);
                assert!(took <= 2_000, "requests every {period} ms, beats {beat:?}: idle memory stayed for {took} ms");
            }
        }
    }
}

#[test]
fn a_window_in_which_a_block_is_freed_is_not_quiet() {
    let mut world = world(false);
    pulses(&mut world, 1_000, 10_000);
    assert_eq!(world.fake().stats().patience.load(Relaxed), 2, "what was used in four windows is kept");
    let block = world.alloc(6 << 20).unwrap();
    wait(&world, 600);
    world.free(block, false);
    wait(&world, 4 * 300);
    assert!(world.fake().resident_blocks() >= 6 << 20);
    wait(&world, 300);
    assert!(world.fake().resident_blocks() < 1 << 20);
}

#[test]
fn patience_can_be_switched_off() {
    let mut world = world(false);
    world.fake().tunables().refault_percent.set(100);
    let (gone, again) = pulses(&mut world, 3_000, 60_000);
    assert!(again * 10 > gone * 9, "{again} of {gone}");
    assert_eq!(world.fake().stats().patience.load(Relaxed), 0);
}

/// A block that the system maps finds no use for what is idle in zones. As much goes in exchange for it, unless the program comes
/// back for that.
#[test]
fn what_a_program_comes_back_for_is_not_given_in_exchange_for_a_block() {
    let mut world = world(false);
    let exchange = |world: &mut World| {
        runs(world, 8 * PAGEBLOCK / RUN);
        free_where(world, |_| true);
        let released = |world: &World| world.fake().stats().given_back[0].load(Relaxed) as usize;
        let before = released(world);
        let block = world.alloc(3 * PAGEBLOCK).unwrap();
        let gone = released(world) - before;
        world.free(block, false);
        gone
    };
    assert_eq!(exchange(&mut world), 3 * PAGEBLOCK);
    wait(&world, 60_000);
    pulses(&mut world, 700, 30_000);
    assert!(world.fake().stats().patience.load(Relaxed) >= 1);
    assert_eq!(exchange(&mut world), 0);
    // Once it is forgotten, it is as before.
    wait(&world, 30 * 60_000);
    assert_eq!(exchange(&mut world), 3 * PAGEBLOCK);
}
