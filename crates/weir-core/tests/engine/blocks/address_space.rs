//! The system maps no more: what the heap has mapped and does not use serves blocks of any size.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::heap::Heap;
use weir_core::platform::Diagnostics;

use crate::fake::{Call, Fake};
use crate::held::World;

const MIB: usize = 1 << 20;
const LIMIT: usize = 100 * MIB;

/// A heap that was filled up to the limit, and freed.
fn filled(nodes: usize, size: usize) -> World {
    let fake = Fake::new();
    fake.node_count.store(nodes, Relaxed);
    let mut world = World::new(fake);
    world.may_fail = true;
    world.fake().limit(LIMIT);
    while world.alloc(size).is_some() {}
    while !world.held.is_empty() {
        world.free(world.held.len() - 1, false);
    }
    world.audit();
    world
}

/// Allocates blocks until none is served; how many were.
fn served(world: &mut World, size: usize) -> usize {
    let before = world.held.len();
    while world.alloc(size).is_some() {}
    world.audit();
    world.held.len() - before
}

#[test]
fn a_heap_that_was_filled_and_freed_serves_large_blocks() {
    for (nodes, size) in [(1, 1000), (1, 100_000), (1, MIB), (2, MIB)] {
        let mut world = filled(nodes, size);
        let large = served(&mut world, 5 * MIB);
        assert!(large >= 18, "{large} of 20, after blocks of {size}");
        while !world.held.is_empty() {
            world.free(world.held.len() - 1, false);
        }
        // And the other way round: the heap grows into what it gave back.
        let small = served(&mut world, MIB);
        assert!(small >= 90, "{small} of 100");
        assert_eq!(world.fake().take_misuses(), []);
    }
}

/// Memory in use stays, and what the system refuses to unmap is used as before.
#[test]
fn only_free_pageblocks_are_unmapped() {
    for refused in [0, u64::MAX, 0b1010_1010] {
        let mut world = filled(1, MIB);
        let kept: Vec<_> = (0..40).map(|_| world.alloc(MIB).unwrap()).collect();
        world.fake().fail(Call::UnmapAt, refused);
        let large = served(&mut world, 5 * MIB);
        assert_eq!(large == 0, refused == u64::MAX, "{large}");
        world.check_contents();
        world.fake().fail_nothing();
        assert!(kept.len() == 40 && served(&mut world, 10_000) > 0);
    }
}

/// A mapping of another's that came into the gap stays there, and the heap grows elsewhere.
#[test]
fn a_gap_that_another_took_is_left_to_it() {
    let mut world = filled(1, MIB);
    let low = world.fake().windows()[0];
    served(&mut world, 5 * MIB);
    let gap = (low.addr..low.addr + LIMIT).step_by(2 * MIB).find(|&addr| !world.fake().is_mapped_at(addr)).unwrap();
    let foreign = world.fake().put_at(gap, MIB);
    while !world.held.is_empty() {
        world.free(world.held.len() - 1, false);
    }
    assert!(served(&mut world, MIB) >= 80);
    assert!(
        world.held.iter().all(|held| held.addr + held.len <= foreign.addr || held.addr >= foreign.addr + foreign.len)
    );
}

/// A size that can never succeed asks the system a few times at most, and costs the heap nothing.
#[test]
fn a_size_beyond_everything_fails_at_once() {
    let mut world = filled(1, MIB);
    let block = world.alloc(6 * MIB).unwrap();
    world.free(block, false);
    let before = world.fake().stats().address_bytes.load(Relaxed);
    for size in [LIMIT * 3, 1 << 39, 1 << 46, 1 << 50, isize::MAX as usize - 8192] {
        world.fake().fail(Call::Map, 0);
        assert!(world.heap.alloc(size).is_null() && world.heap.alloc_zeroed(size).is_null());
        let calls = world.fake().calls(Call::Map);
        assert!(calls <= 4, "{calls} calls for {size:#x}");
    }
    assert_eq!(world.fake().stats().address_bytes.load(Relaxed), before);
}

/// A heap at rest after a peak, where the system counts what is mapped.
fn at_rest_after_a_peak(nodes: usize, size: usize) -> World {
    let fake = Fake::new();
    fake.node_count.store(nodes, Relaxed);
    at_rest_on(fake, size)
}

fn at_rest_on(fake: Fake, size: usize) -> World {
    fake.are_mappings_counted.store(true, Relaxed);
    let mut world = World::new(fake);
    while world.held.len() * size < LIMIT {
        world.alloc(size);
    }
    while world.held.len() * size > LIMIT / 10 {
        world.free(world.held.len() - 1, false);
    }
    while world.heap.reclaim().balance_calm() {}
    world.audit();
    world
}

#[test]
fn what_a_quiet_heap_released_is_unmapped_where_what_is_mapped_counts() {
    for (nodes, size) in [(1, 1000), (1, 100_000), (2, MIB)] {
        let mut world = at_rest_after_a_peak(nodes, size);
        let mapped = |world: &World| world.fake().stats().address_bytes.load(Relaxed) as usize;
        let rest = mapped(&world);
        assert!(rest < LIMIT / 4, "{rest} bytes are mapped, after blocks of {size}");
        // What is in use stays, and the heap grows into the gaps.
        world.check_contents();
        let top = world.held.iter().map(|held| held.addr).max().unwrap() + LIMIT;
        while world.held.len() * size < LIMIT {
            world.alloc(size).unwrap();
        }
        assert!(mapped(&world) < LIMIT * 5 / 4 && world.held.iter().all(|held| held.addr < top));
        world.check_contents();
        // Nothing of it waits for a quiet window where the program asks.
        while world.held.len() * size > LIMIT / 10 {
            world.free(world.held.len() - 1, false);
        }
        world.heap.purge();
        assert!(mapped(&world) < LIMIT / 4);
        world.audit();
        assert_eq!(world.fake().take_misuses(), []);
    }
}

#[test]
fn what_the_system_does_not_unmap_lets_the_heap_rest_all_the_same() {
    let mut world = at_rest_after_a_peak(1, MIB);
    while world.held.len() * MIB < LIMIT {
        world.alloc(MIB).unwrap();
    }
    while world.held.len() > 10 {
        world.free(world.held.len() - 1, false);
    }
    world.fake().fail(Call::UnmapAt, u64::MAX);
    let windows = (0..100).take_while(|_| world.heap.reclaim().balance_calm()).count();
    assert!(windows < 100);
    world.audit();
    assert!(world.heap.figures().usage().idle < LIMIT / 10);
}

/// The kernel takes what was released lazily when it is short itself. Until then it holds what it held.
#[test]
fn what_was_released_lazily_and_stays_mapped_is_not_known_to_be_zero() {
    for is_purged in [false, true] {
        let fake = Fake::new();
        fake.tunables().report_lazily.set(1);
        fake.fail(Call::UnmapAt, u64::MAX);
        let mut world = at_rest_on(fake, MIB);
        assert!(world.fake().calls(Call::UnmapAt) > 0);
        if is_purged {
            world.fake().take_released();
            world.heap.purge();
            let released: usize = world.fake().take_released().concat().iter().map(|run| run.len).sum();
            assert!(released > LIMIT / 2, "{released} bytes went for good");
        }
        while world.held.len() * MIB < LIMIT {
            world.alloc_zeroed(MIB).unwrap();
        }
    }
}

/// A heap in which rows of more than one pageblock are worth a hole, and a lone one is not.
#[test]
fn a_row_that_is_too_short_holds_up_no_other() {
    const ROWS: usize = 560;
    let mut fake = Fake::new();
    fake.window = 24 << 30;
    fake.are_mappings_counted.store(true, Relaxed);
    let world = World::new(fake);
    let mut blocks: Vec<usize> = (0..ROWS * 8).map(|_| world.heap.alloc(2 * MIB).addr()).collect();
    blocks.sort_unstable();
    let mapped = || world.fake().stats().address_bytes.load(Relaxed) as usize / (2 * MIB);
    // Of each eight the first stays, and of every tenth eight the third.
    let stays = |i: usize| i.is_multiple_of(8) || i % 80 == 2;
    for (_, &addr) in blocks.iter().enumerate().filter(|&(i, _)| !stays(i)) {
        // SAFETY: allocated above.
        unsafe { world.heap.free(addr as *mut u8) };
    }
    while world.heap.reclaim().balance_calm() {}
    let (used, lone) = (ROWS + ROWS / 10, ROWS / 10);
    let left = mapped();
    assert!((used..used + 2 * lone).contains(&left), "{left} pageblocks for {used} in use and {lone} alone");
    world.leak();
}

/// Pageblocks on their way out count against the hard limit until they are gone.
#[test]
fn what_waits_to_be_unmapped_counts_against_the_hard_limit() {
    let world = filled(1, MIB);
    world.fake().tunables().hard_limit.set(2 * LIMIT as u64);
    world.fake().fail(Call::UnmapAt, u64::MAX);
    let heap: &'static Heap<Fake> = &world.leak().heap;
    let seen: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let before = heap.reclaim().budget_figures().free;
    heap.platform().while_it_unmaps(move || {
        let free = heap.reclaim().budget_figures().free;
        let _ = seen.compare_exchange(0, free, Relaxed, Relaxed);
    });
    assert!(heap.alloc(5 * MIB).is_null());
    let seen = seen.load(Relaxed);
    assert!(seen > 0 && seen <= before, "{before} bytes of room, and {seen} meanwhile");
}
