//! Runs in buckets where something is wrong or short: wrong frees that the fast path let in, drains, low memory, a hard limit, a
//! fork.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::invalid_free::InvalidFree::{DoubleFree, InteriorPointer};
use weir_core::base::units::{PAGE, Pages};
use weir_core::heap::Heap;
use weir_core::platform::Diagnostics;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::budget::Room;

use crate::caches::class_runs::{KIB, MIB, loaded, passing, worlds};
use crate::fake::{Fake, run_on};
use crate::held::World;

/// Frees an address as a wrong program would.
fn free(world: &World, addr: usize) {
    // SAFETY: it is not: that is what is tested. The engine must not touch what is held.
    unsafe { world.heap.free(addr as *mut u8) }
}

/// Frees all blocks of `size` bytes; their addresses.
fn free_of(world: &mut World, size: usize) -> Vec<usize> {
    let mut addrs = Vec::new();
    while let Some(i) = world.held.iter().position(|block| block.len == size) {
        addrs.push(world.held[i].addr);
        world.free(i, false);
    }
    addrs
}

/// A bucket with `runs` runs of `size` bytes.
fn filled(world: &mut World, size: usize, runs: usize) -> Vec<usize> {
    (0..runs).for_each(|_| assert!(world.alloc(size).is_some()));
    let addrs = free_of(world, size);
    assert_eq!(world.audit().cpu_runs, runs);
    addrs
}

#[test]
fn a_pointer_into_a_run_is_handed_out_to_nobody() {
    for mut world in worlds(32) {
        let size = 40 * KIB;
        // The bucket has room for two.
        filled(&mut world, size, 2);
        let i = world.alloc(size).unwrap();
        let inside = world.held[i].addr + 64;
        free(&world, inside);
        // What is allocated is checked for its alignment, and that it is nobody else's.
        (0..3).for_each(|_| assert!(world.alloc_aligned(PAGE, size).is_some()));
        assert_eq!(world.fake().take_misuses(), [(InteriorPointer, inside)]);
    }
}

/// Two CPUs have it, and one gives it to its zone.
#[test]
fn a_run_in_a_bucket_that_is_free_by_now_is_not_handed_out() {
    for mut world in worlds(32) {
        let size = 40 * KIB;
        let twice = passing(&mut world, size);
        // The second CPU's bucket has room for it then.
        run_on(1);
        passing(&mut world, size);
        world.alloc(size).unwrap();
        free(&world, twice);
        // The second CPU's runs go back before memory becomes resident; so little of it that all CPUs' do not.
        (0..4).for_each(|_| assert!(world.alloc(100 * KIB).is_some()));
        run_on(0);
        (0..3).for_each(|_| assert!(world.alloc(size).is_some()));
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, twice)]);
    }
}

/// Runs that are idle in buckets go before the balancer, which is woken for it alone, takes what is in use.
#[test]
fn the_balancer_takes_runs_where_little_is_left() {
    for mut world in worlds(32) {
        run_on(1);
        passing(&mut world, MIB);
        run_on(0);
        passing(&mut world, 40 * KIB);
        assert_eq!(world.audit().cpu_runs, 2);
        let capacity = 1 << 30;
        let mut turn = Turn::default();
        let low = Marks::of(Pages::in_bytes(capacity), 250).low.bytes().0;
        world.heap.reclaim().read_room(Room::shared(capacity as u64, (capacity - low) as u64));
        let woken = world.fake().stats().wakeups.load(Relaxed);
        for _ in 0..100 {
            match world.heap.reclaim().balance_zones(&mut turn) {
                Next::Again => {}
                Next::At(_) => world.fake().pass_ms(100),
                Next::Asleep => break,
            }
        }
        assert_eq!((woken, world.audit().cpu_runs), (1, 0));
    }
}

/// Below the hard limit they go before the program is told, for a run as for a block mapped on its own.
#[test]
fn the_hard_limit_takes_runs_before_the_program_is_told() {
    for wanted in [3 * MIB, 8 * MIB] {
        for mut world in worlds(32) {
            (0..2).for_each(|_| assert!(world.alloc(MIB).is_some()));
            for cpu in 1..3 {
                run_on(cpu);
                world.free(world.held.len() - 1, false);
            }
            run_on(0);
            assert_eq!(world.audit().cpu_runs, 2);
            world.heap.figures().publish();
            let stats = world.fake().stats();
            // All but the runs in buckets, and a little for what describes it.
            let limit = 32 * MIB + stats.metadata_bytes.load(Relaxed) as usize + wanted + MIB / 2;
            world.fake().tunables().hard_limit.set(limit as u64);
            assert!(world.alloc(wanted).is_some());
            assert_eq!(world.audit().cpu_runs, 0);
            assert!(world.fake().at_hard_limit.lock().unwrap().is_empty());
            world.fake().tunables().hard_limit.set(0);
        }
    }
}

/// A drain of runs leaves a CPU that has none its other buckets, whatever is drained meanwhile.
#[test]
fn a_drain_of_runs_leaves_cpus_without_runs_alone() {
    let mut world = loaded(Fake::new(), 32);
    run_on(1);
    passing(&mut world, 100);
    run_on(2);
    passing(&mut world, MIB);
    let heap = NonNull::from(&*world.heap).addr().get();
    world.fake().after_each_fence(move || {
        run_on(1);
        // SAFETY: the heap outlives the hook, which runs inside one of its calls.
        let heap = unsafe { &*(heap as *const Heap<Fake>) };
        let misses = || heap.platform().stats().alloc_misses.load(Relaxed);
        let before = misses();
        let object = heap.alloc(100);
        assert_eq!(misses(), before, "its bucket was taken over");
        // SAFETY: allocated just now.
        unsafe { heap.free(object) };
        run_on(0);
    });
    run_on(0);
    while world.audit().cpu_runs > 0 {
        world.alloc(100 * KIB).unwrap();
    }
    assert_eq!(world.fake().fences.load(Relaxed), 1);
    world.fake().after_each_fence(|| {});
}

/// Runs that buckets hold across a fork are the child's too.
#[test]
fn a_child_has_the_runs_of_all_cpus() {
    for mut world in worlds(32) {
        let of_cpus = [0, 1].map(|cpu| {
            run_on(cpu);
            passing(&mut world, 100 * KIB)
        });
        world.heap.fork().freeze();
        // SAFETY: frozen just now on this thread, which plays the child's only one.
        unsafe { world.heap.fork().thaw_child() };
        for (cpu, run) in of_cpus.into_iter().enumerate() {
            run_on(cpu);
            assert_eq!(passing(&mut world, 100 * KIB), run);
        }
        run_on(0);
        world.heap.purge();
        assert_eq!(world.audit().cpu_runs, 0);
    }
}
