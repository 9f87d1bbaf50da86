//! Runs that wait for their CPU's next visit to its zone: what ends the wait, and what is wrong in a free.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::invalid_free::InvalidFree::DoubleFree;
use weir_core::platform::Diagnostics;

use crate::caches::class_runs::{KIB, passing, worlds};
use crate::fake::run_on;
use crate::heap::usage;
use crate::held::World;
use crate::reclaim::order::{calm, free_where};

const SIZE: usize = 100 * KIB;

/// Frees a run that nothing missed lately, on the current CPU; its address. Four longer ones that stay were missed since.
fn let_one_wait(world: &mut World) -> usize {
    let [first, ..] = [SIZE, 300 * KIB, 300 * KIB, 300 * KIB, 300 * KIB].map(|size| world.alloc(size).unwrap());
    let addr = world.held[first].addr;
    let before = world.audit().cpu_runs;
    world.free(first, false);
    assert_eq!(world.audit().cpu_runs, before + 1);
    addr
}

#[test]
fn it_is_idle_and_the_next_run_of_any_length_may_have_its_place() {
    for mut world in worlds(32) {
        let addr = let_one_wait(&mut world);
        usage::check(&world);
        assert_eq!(passing(&mut world, 40 * KIB), addr, "of no class that it serves");
    }
}

#[test]
fn the_end_of_a_window_a_trim_or_another_run_ends_the_wait() {
    for mut world in worlds(32) {
        let ends: [&dyn Fn(&mut World); 3] =
            [&|world| calm(world), &|world| assert!(world.heap.purge() > 0), &|world| {
                assert!(world.alloc(600 * KIB).is_some())
            }];
        for end in ends {
            run_on(1);
            passing(&mut world, 100);
            let_one_wait(&mut world);
            end(&mut world);
            assert_eq!(world.audit().cpu_runs, 0);
            run_on(0);
        }
        // Of another CPU's run the end of a window knows as well.
        run_on(1);
        let_one_wait(&mut world);
        run_on(0);
        calm(&world);
        assert_eq!(world.audit().cpu_runs, 0);
    }
}

#[test]
fn runs_that_wait_and_rest_wake_the_balancer() {
    const RUNS: usize = 4;
    for mut world in worlds(64) {
        world.fake().tunables().report_threshold.set((RUNS * SIZE) as u64);
        let before = world.fake().notices.load(Relaxed);
        for cpu in 0..RUNS {
            assert_eq!(world.fake().notices.load(Relaxed), before, "{cpu} runs wait");
            run_on(cpu);
            let_one_wait(&mut world);
        }
        assert_eq!(world.fake().notices.load(Relaxed), before + 1);
        assert_eq!(world.audit().cpu_runs, RUNS);
        run_on(0);
    }
}

/// One that takes another's place counts as far as that one did not.
#[test]
fn a_longer_run_that_takes_a_shorter_ones_place_wakes_the_balancer() {
    for mut world in worlds(64) {
        let [short, long, ..] = [40 * KIB, 200 * KIB, 300 * KIB, 300 * KIB, 300 * KIB, 300 * KIB]
            .map(|size| world.alloc(size).map(|i| world.held[i].addr).unwrap());
        world.fake().tunables().report_threshold.set(200 << 10);
        let before = world.fake().notices.load(Relaxed);
        free_where(&mut world, |addr| addr == short);
        assert_eq!(world.fake().notices.load(Relaxed), before);
        free_where(&mut world, |addr| addr == long);
        assert_eq!((world.fake().notices.load(Relaxed), world.audit().cpu_runs), (before + 1, 1));
    }
}

#[test]
fn one_waits_on_each_cpu_and_no_long_one() {
    for mut world in worlds(32) {
        let_one_wait(&mut world);
        let_one_wait(&mut world);
        assert_eq!(world.audit().cpu_runs, 1);
        let [long, ..] = [300 * KIB, SIZE, SIZE, SIZE, SIZE].map(|size| world.alloc(size).unwrap());
        let before = world.audit().cpu_runs;
        world.free(long, false);
        assert_eq!(world.audit().cpu_runs, before);
    }
}

/// One buffer after the other, each of another length, in a heap for which one is much: no zone is asked, and nothing grows.
#[test]
fn in_a_small_heap_each_next_length_is_cut_from_it() {
    for mut world in worlds(0) {
        passing(&mut world, 100);
        let addr = passing(&mut world, 3000 * KIB);
        usage::check(&world);
        // From the shortest there are to almost its own, in a mixed order.
        for size in (0..700).map(|i| (9 + i * 211 % 700) * 4 * KIB) {
            assert_eq!(passing(&mut world, size), addr, "{size}");
            assert_eq!(world.audit().cpu_runs, 1, "{size}");
        }
        usage::check(&world);
        // All of it goes as one.
        assert!(world.heap.purge() > 0);
        assert_eq!(world.audit().cpu_runs, 0);
    }
}

/// What is cut and lives keeps its bytes while what lies behind it is cut again, and both are freed in either order.
#[test]
fn what_is_cut_lives_beside_what_is_cut_behind_it() {
    for is_first_freed_first in [true, false] {
        for mut world in worlds(0) {
            passing(&mut world, 100);
            passing(&mut world, 1000 * KIB);
            let [first, second] = [100 * KIB, 200 * KIB].map(|size| world.alloc(size).unwrap());
            let [low, high] = [first, second].map(|i| world.held[i].addr);
            assert_eq!(high, low + 100 * KIB);
            usage::check(&world);
            let order = if is_first_freed_first { [low, high] } else { [high, low] };
            order.into_iter().for_each(|next| free_where(&mut world, |addr| addr == next));
            usage::check(&world);
        }
    }
}

#[test]
fn a_second_free_of_what_was_cut_is_named() {
    for mut world in worlds(0) {
        // SAFETY: it is not: that is what is tested. The engine must not touch what is held.
        let free = |world: &World, addr: usize| unsafe { world.heap.free(addr as *mut u8) };
        passing(&mut world, 100);
        passing(&mut world, 1000 * KIB);
        let addr = passing(&mut world, 100 * KIB);
        free(&world, addr);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, addr)]);
        assert_eq!(world.audit().cpu_runs, 1);
    }
}

/// Threads that go from CPU to CPU leave no more behind than becomes resident elsewhere.
#[test]
fn what_waits_elsewhere_goes_before_a_small_heap_grows() {
    for mut world in worlds(0) {
        for cpu in 0..4 {
            run_on(cpu);
            passing(&mut world, 100);
            passing(&mut world, 2000 * KIB);
        }
        assert_eq!(world.audit().cpu_runs, 1);
        run_on(0);
    }
}

#[test]
fn a_second_free_of_it_is_named() {
    for mut world in worlds(32) {
        // SAFETY: it is not: that is what is tested. The engine must not touch what is held.
        let free = |world: &World, addr: usize| unsafe { world.heap.free(addr as *mut u8) };
        let addr = let_one_wait(&mut world);
        free(&world, addr);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, addr)]);
        assert_eq!(world.audit().cpu_runs, 1);
        // It is in its zone.
        world.heap.purge();
        free(&world, addr);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, addr)]);
    }
}
