//! The refault meter on a heap, and the calm policy that learns from it, on a clock that the test moves.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::level::Level;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::platform::{Clock, Diagnostics};

use crate::held::World;
use crate::policy::{RUN, free_where, full_pageblocks, pressure, runs, world};

fn touched_again(world: &World) -> usize {
    world.fake().stats().refault_bytes.load(Relaxed) as usize
}

/// Ends calm windows of the length that the heap asks for, until `ms` have passed.
fn wait(world: &World, ms: u64) {
    let end = world.fake().now() + ms * 1_000_000;
    while world.fake().now() < end {
        let window = (world.heap.calm_window() / 1_000_000).min((end - world.fake().now()).div_ceil(1_000_000));
        world.fake().pass_ms(window);
        world.heap.balance_calm();
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
        world.finish();
    }
}

#[test]
fn fresh_memory_is_none_that_is_taken_again() {
    let mut world = full_pageblocks(false, 8);
    wait(&world, 1000);
    runs(&mut world, 8 * PAGEBLOCK / RUN);
    assert_eq!(touched_again(&world), 0);
    world.finish();
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
    world.finish();
}

/// A program that uses 16 MiB every `period` ms, for `ms`; what it made the system below take and give again.
fn pulses(world: &mut World, period: u64, ms: u64) -> (usize, usize) {
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
fn a_program_that_comes_back_every_few_seconds_is_let_alone_after_a_while() {
    let mut world = world(false);
    let minute = 60_000;
    let (gone, again) = pulses(&mut world, 3_000, minute / 2);
    assert!(again * 2 > gone && gone >= 2 * 8 * PAGEBLOCK, "at first it hurts: {again} of {gone}");
    assert!(world.fake().stats().patience.load(Relaxed) >= 3);
    let (gone, again) = pulses(&mut world, 3_000, 10 * minute);
    // It tries again now and then: no more than 2 % of the 3200 MiB that would have gone.
    assert!(again <= 200 * 8 * PAGEBLOCK / 50, "{again} of {gone} bytes still come back");
    // Under pressure it goes at once nevertheless.
    runs(&mut world, 8 * PAGEBLOCK / RUN);
    free_where(&mut world, |_| true);
    assert!(pressure(&world, Level::Some) >= 7 * PAGEBLOCK);
    // Once the program is idle, it all goes, and patience is forgotten in time.
    wait(&world, minute);
    assert!(world.audit().idle_pages * PAGE <= RUN);
    wait(&world, 30 * minute);
    assert_eq!(world.fake().stats().patience.load(Relaxed), 0);
    assert_eq!(world.heap.calm_window(), world.fake().tunables().idle_ms.get() * 1_000_000);
    world.finish();
}

#[test]
fn a_program_that_comes_back_rarely_is_not_waited_for() {
    let mut world = world(false);
    let (gone, again) = pulses(&mut world, 15_000, 300_000);
    assert!(gone >= 19 * 8 * PAGEBLOCK, "{gone} bytes went");
    assert_eq!((again, world.fake().stats().patience.load(Relaxed)), (0, 0));
    world.finish();
}

#[test]
fn patience_can_be_switched_off() {
    let mut world = world(false);
    world.fake().tunables().refault_percent.set(100);
    let (gone, again) = pulses(&mut world, 3_000, 60_000);
    assert!(again * 10 > gone * 9, "{again} of {gone}");
    assert_eq!(world.fake().stats().patience.load(Relaxed), 0);
    world.finish();
}
