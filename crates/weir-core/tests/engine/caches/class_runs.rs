//! Run classes: what a CPU's buckets hold of runs, what they give up and when, and what is wrong in a free.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree::{DoubleFree, InteriorPointer};
use weir_core::base::level::Level;
use weir_core::base::run_class::{all, size_of_class};
use weir_core::base::time::Time;
use weir_core::base::units::PAGE;
use weir_core::platform::Diagnostics;

use crate::fake::{Fake, run_on};
use crate::heap::usage;
use crate::held::{World, layout};
use crate::reclaim::order::calm;

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;
/// Part of a heap that all buckets have room for; if others have more than their share, a CPU's share is beside that.
const PART: usize = 8;
/// Bytes that they have room for, whatever the heap has, where CPUs take back what they handed out.
const LEAST: usize = 8 * MIB;
/// A run that stays: of no class.
const BALLAST: usize = 4 * MIB;

/// Worlds in which `mib` MiB are in use, so that buckets may hold a part of it.
pub fn worlds(mib: usize) -> impl Iterator<Item = World> {
    [true, false].into_iter().map(move |lockless| {
        let mut fake = Fake::new();
        fake.lockless = lockless;
        loaded(fake, mib)
    })
}

pub fn loaded(fake: Fake, mib: usize) -> World {
    run_on(0);
    let mut world = World::new(fake);
    (0..mib * MIB / BALLAST).for_each(|_| assert!(world.alloc(BALLAST).is_some()));
    world
}

/// Frees all but what stays.
fn free_rest(world: &mut World) {
    while let Some(i) = world.held.iter().position(|block| block.len != BALLAST) {
        world.free(i, false);
    }
}

/// Bytes of pages in use and in buckets.
fn pages(world: &World) -> usize {
    let audit = world.audit();
    (audit.run_pages + audit.slab_pages) * PAGE
}

/// Bytes in buckets.
fn held(world: &World) -> usize {
    world.heap.figures().publish();
    world.fake().stats().idle_bytes.load(Relaxed) as usize - world.audit().idle_pages * PAGE
}

/// Allocates `size` bytes and frees them; the address.
pub fn passing(world: &mut World, size: usize) -> usize {
    let i = world.alloc(size).unwrap();
    let addr = world.held[i].addr;
    world.free(i, false);
    addr
}

fn taken(world: &World) -> u64 {
    world.fake().stats().large_allocs.load(Relaxed)
}

#[test]
fn a_freed_run_serves_the_next_request_of_its_class() {
    for mut world in worlds(32) {
        let addr = passing(&mut world, 100 * KIB);
        assert_eq!(world.audit().cpu_runs, 1);
        let before = taken(&world);
        // 100 KiB are of the class up to 104.
        for size in [97 * KIB, 100 * KIB - 1, 100 * KIB] {
            assert_eq!(passing(&mut world, size), addr);
        }
        assert_eq!(taken(&world), before, "no zone was asked");
        // SAFETY: it is in a bucket: its length can be told.
        assert_eq!(unsafe { world.heap.usable_size(addr as *mut u8) }, 100 * KIB);
        let i = world.alloc_aligned(PAGE, 100 * KIB).unwrap();
        assert_eq!((world.held[i].addr, taken(&world)), (addr, before));
        world.free(i, false);
        for size in [96 * KIB, 84 * KIB] {
            assert_eq!(passing(&mut world, size), addr, "it is of one of the next two classes");
        }
        assert_eq!(taken(&world), before);
        passing(&mut world, 80 * KIB);
        assert_eq!(taken(&world), before + 1, "it is of the third");
        passing(&mut world, 98 * KIB);
        let before = taken(&world);
        passing(&mut world, 104 * KIB);
        assert_eq!(taken(&world), before + 1, "of the class, but too long for what there is");
        assert_eq!(passing(&mut world, 104 * KIB), passing(&mut world, 98 * KIB), "a longer one does");
    }
}

/// Arenas aligned to their size come from a bucket as others do. One that begins elsewhere goes to its zone.
#[test]
fn a_run_from_a_bucket_serves_an_aligned_request_if_it_begins_right() {
    for mut world in worlds(32) {
        let arena = 64 * KIB;
        let aligned = |world: &mut World| {
            let i = world.alloc_aligned(arena, arena).unwrap();
            let addr = world.held[i].addr;
            world.free(i, false);
            assert!(addr.is_multiple_of(arena));
            addr
        };
        let first = aligned(&mut world);
        let before = taken(&world);
        assert_eq!(([aligned(&mut world), aligned(&mut world)], taken(&world)), ([first; 2], before));
        assert_eq!(world.audit().cpu_runs, 1);
        // One that stays keeps the next off the boundary.
        world.heap.purge();
        (0..9).for_each(|_| assert!(world.alloc(36 * KIB).is_some()));
        while passing(&mut world, arena).is_multiple_of(arena) {
            assert!(world.alloc(36 * KIB).is_some());
            world.heap.purge();
        }
        assert_eq!(world.audit().cpu_runs, 1);
        let before = taken(&world);
        aligned(&mut world);
        assert_eq!((taken(&world), world.audit().cpu_runs), (before + 1, 1));
    }
}

#[test]
fn a_run_from_a_bucket_is_wiped_where_zeros_are_asked_for() {
    for mut world in worlds(32) {
        // Its contents are checked there, to the end of the class.
        let addr = passing(&mut world, 200 * KIB);
        let i = world.alloc_zeroed(200 * KIB - 100).unwrap();
        assert_eq!(world.held[i].addr, addr);
    }
}

#[test]
fn a_run_that_is_resized_in_place_is_of_the_class_of_its_new_length() {
    for mut world in worlds(8) {
        let mut in_place = 0;
        for size in [300 * KIB, 70 * KIB] {
            for wanted in [size + 1, size * 3 / 4, size * 2] {
                let i = world.alloc(size).unwrap();
                let addr = world.held[i].addr;
                world.realloc(i, wanted);
                // The audit knows how long runs of a class are.
                world.audit();
                in_place += usize::from(world.held.iter().any(|block| block.addr == addr));
                free_rest(&mut world);
                world.audit();
                world.heap.purge();
                assert_eq!(passing(&mut world, size), addr, "the lowest there is");
                world.heap.purge();
            }
        }
        assert!(in_place >= 5);
    }
}

/// A buffer that grows takes what lies behind it out of the bucket, and is not copied.
#[test]
fn a_run_grows_into_one_that_a_bucket_has() {
    for mut world in worlds(32) {
        let [first, second] = [100 * KIB; 2].map(|size| world.alloc(size).unwrap());
        let [first_addr, second_addr] = [first, second].map(|i| world.held[i].addr);
        assert_eq!(second_addr, first_addr + 100 * KIB, "one behind the other");
        world.free(second, false);
        assert_eq!(world.audit().cpu_runs, 1);
        world.realloc(first, 120 * KIB);
        assert!(world.held.iter().any(|block| block.addr == first_addr && block.len == 120 * KIB));
        assert_eq!(world.audit().cpu_runs, 0);
    }
}

/// It has what its class serves at once. By large steps it has what it asks for.
#[test]
fn a_run_that_grows_by_small_steps_has_room_for_some() {
    for mut world in worlds(32) {
        let usable = |world: &World, step: usize| {
            // SAFETY: allocated here, and given up for what comes back.
            let block = unsafe { world.heap.realloc(world.heap.alloc(72 * KIB), 72 * KIB + step) };
            // SAFETY: as above.
            let usable = unsafe { world.heap.usable_size(block) };
            let stays = [usable, usable + 1].map(|size| world.heap.stays(block, size));
            assert_eq!(stays, [true, false], "{usable}");
            // SAFETY: as above.
            unsafe { world.heap.free(block) };
            usable
        };
        // From 64 to 128 KiB a class is 8 KiB longer than the one before.
        assert_eq!([PAGE, 36 * KIB].map(|step| usable(&world, step)), [80 * KIB, 108 * KIB]);
        // Where what lies behind is in use, it moves.
        let first = world.alloc(72 * KIB).unwrap();
        let behind = world.held[first].addr + 72 * KIB;
        while world.held.iter().all(|block| block.addr != behind) {
            world.alloc(PAGE * 10).unwrap();
        }
        world.realloc(first, 76 * KIB);
        let moved = world.held.iter().find(|block| block.len == 76 * KIB).unwrap().addr;
        assert_ne!(moved + 72 * KIB, behind);
        // SAFETY: it is held.
        assert_eq!(unsafe { world.heap.usable_size(moved as *mut u8) }, 80 * KIB);
    }
}

/// Blocks that a resize leaves as they are, as far as that is told without a look-up.
#[test]
fn objects_and_runs_of_a_class_stay_as_they_are_and_nothing_else_does() {
    for mut world in worlds(8) {
        // Of 25 pages 3 may be spare.
        let cases = [(16, 1..=16), (1000, 513..=1024), (100 * KIB, 84 * KIB + 1..=100 * KIB)];
        for (size, sizes) in cases {
            let block = world.alloc(size).unwrap();
            let block = world.held[block].addr as *mut u8;
            for size in [0, 1, 16, 17, 512, 513, 1024, 1025, 84 * KIB, 84 * KIB + 1, 100 * KIB, 100 * KIB + 1] {
                assert_eq!(world.heap.stays(block, size), sizes.contains(&size), "{sizes:?} {size}");
            }
        }
        let run = world.heap.alloc(100 * KIB);
        let origin = weir_core::profile::recorder::Origin { frames: &[1], mean: 1, random: 0 };
        world.heap.profile().switch(world.heap.platform(), 1, Time(0)).unwrap();
        let sample = world.heap.samples().alloc(layout(16, 100 * KIB), false, origin);
        let low = world.heap.alloc_low32(100 * KIB);
        let others = [run.wrapping_add(PAGE), run.wrapping_add(16), sample, low, std::ptr::null_mut()];
        assert!(others.into_iter().all(|other| !world.heap.stays(other, 100 * KIB)));
        // SAFETY: allocated here.
        [run, sample, low].into_iter().for_each(|block| unsafe { world.heap.free(block) });
    }
}

#[test]
fn what_cpus_hold_is_bounded() {
    for mut world in worlds(32) {
        for cpu in 0..6 {
            run_on(cpu);
            let before = held(&world);
            // One after the other, upwards and downwards; the first CPU has all of it, each further one its share.
            for class in all().chain(all().rev()) {
                let i = world.alloc(size_of_class(class)).unwrap();
                // SAFETY: allocated above.
                let run = unsafe { world.heap.usable_size(world.held[i].addr as *mut u8) };
                world.free(i, false);
                let (held, all) = (held(&world), (pages(&world) / PART).max(LEAST));
                // Or just the one that it has taken back, which may be of a longer class.
                let most = (if cpu == 0 { all } else { 2 * all }).max(before + run);
                assert!(held <= most, "{held} of {all}");
            }
            assert!(held(&world) > 0);
        }
        run_on(0);
        (0..100).for_each(|_| assert!(world.alloc(40 * KIB).is_some()));
        free_rest(&mut world);
        assert!(held(&world) <= 2 * (pages(&world) / PART).max(LEAST));
    }
}

/// A part of little is less than a run.
#[test]
fn a_small_heap_keeps_what_a_cpu_takes_back() {
    for mut world in worlds(0) {
        for size in all().map(size_of_class) {
            // One in some displaces others, where there are any.
            (0..9).for_each(|_| assert!(passing(&mut world, size) > 0));
            let before = taken(&world);
            (0..9).for_each(|_| assert!(passing(&mut world, size) > 0));
            assert_eq!(taken(&world), before, "{size}");
        }
    }
}

/// A run that another CPU asked for is no use to the one that frees it. It would have to be fetched from there each time.
#[test]
fn a_small_heap_keeps_nothing_that_others_asked_for() {
    for mut world in worlds(0) {
        run_on(1);
        passing(&mut world, 100);
        let sizes: Vec<_> = all().map(size_of_class).collect();
        for (i, &size) in sizes.iter().enumerate() {
            let other = sizes[(i + 10) % sizes.len()];
            // It misses others itself.
            passing(&mut world, other);
            world.heap.purge();
            run_on(0);
            let i = world.alloc(size).unwrap();
            run_on(1);
            world.free(i, false);
            assert_eq!(world.audit().cpu_runs, 0, "{size}");
        }
        run_on(0);
    }
}

/// Where lengths differ by little, what is freed serves one of the next requests.
#[test]
fn any_run_of_the_class_that_was_missed_is_kept() {
    for mut world in worlds(32) {
        let [first, _] = [100 * KIB, 104 * KIB].map(|size| world.alloc(size).unwrap());
        world.free(first, false);
        assert_eq!(world.audit().cpu_runs, 1);
        let before = taken(&world);
        passing(&mut world, 98 * KIB);
        assert_eq!(taken(&world), before);
    }
}

/// What is not like any of the last few that were missed is seldom wanted next.
#[test]
fn what_was_not_missed_is_not_kept() {
    for mut world in worlds(32) {
        for size in (100..200).step_by(10).map(|pages| pages * PAGE) {
            let [first, ..] = [size, 2 * size, 2 * size, 2 * size, 2 * size].map(|size| world.alloc(size).unwrap());
            world.free(first, false);
        }
        assert_eq!(world.audit().cpu_runs, 0);
        let kept = passing(&mut world, 100 * PAGE);
        assert_eq!((world.audit().cpu_runs, kept), (1, passing(&mut world, 100 * PAGE)));
    }
}

/// Bytes in buckets are those of the runs there, on all CPUs.
#[test]
fn figures_have_their_lengths() {
    for mut world in worlds(32) {
        let mut sum = 0;
        for (cpu, pages) in [9, 37, 33, 20, 11].into_iter().enumerate() {
            run_on(cpu);
            passing(&mut world, pages * PAGE - 100);
            sum += pages * PAGE;
            assert_eq!((world.audit().cpu_runs, held(&world)), (cpu + 1, sum));
            usage::check(&world);
        }
        run_on(0);
    }
}

#[test]
fn a_class_that_frees_on_displaces_others() {
    for mut world in worlds(32) {
        // The budget is used up by others.
        all().for_each(|class| assert!(passing(&mut world, size_of_class(class)) > 0));
        (0..1000).for_each(|_| assert!(passing(&mut world, 900 * KIB) > 0));
        let before = taken(&world);
        (0..100).for_each(|_| assert!(passing(&mut world, 900 * KIB) > 0));
        assert_eq!(taken(&world), before);
    }
}

/// A program that has one block at a time, of many sizes, needs no more memory than for the longest.
#[test]
fn runs_in_buckets_go_before_memory_becomes_resident() {
    for (mib, mut world) in [0, 32].into_iter().flat_map(|mib| worlds(mib).map(move |world| (mib, world))) {
        let resident = |world: &World| pages(world) + world.audit().idle_pages * PAGE - mib * MIB;
        for size in (1..=256).rev().map(|pages| pages * PAGE).filter(|&size| size > 32 * KIB) {
            passing(&mut world, size);
            assert!(resident(&world) <= MIB, "{} KiB after {} KiB", resident(&world) / KIB, size / KIB);
        }
        assert!(world.audit().cpu_runs > 0);
        // Slabs of objects are put where they were.
        while world.audit().cpu_runs > 0 {
            world.alloc(32 * KIB).unwrap();
        }
        let slabs = world.audit().slab_pages * PAGE;
        assert!(resident(&world) <= MIB + slabs, "{} KiB", resident(&world) / KIB);
        free_rest(&mut world);
        // And so where a block is mapped on its own.
        passing(&mut world, MIB);
        assert_eq!(world.audit().cpu_runs, 1);
        world.alloc(8 * MIB).unwrap();
        assert_eq!(world.audit().cpu_runs, 0);
    }
}

/// Runs of a CPU that the program has left go, too: but not by each little that becomes resident.
#[test]
fn runs_of_other_cpus_go_before_much_becomes_resident() {
    for mut world in worlds(32) {
        passing(&mut world, MIB);
        run_on(1);
        let part = (32 * MIB + MIB) / 64;
        let mut fresh = 0;
        while world.audit().cpu_runs > 0 {
            world.alloc(100 * KIB).unwrap();
            fresh += 100 * KIB;
            assert!(fresh <= part + 200 * KIB, "{fresh} bytes, and a run is kept");
        }
        assert!(fresh >= part - 100 * KIB, "{fresh} bytes");
        run_on(0);
    }
}

#[test]
fn reclaim_takes_them_from_all_cpus() {
    for (why, mut world) in (0..4).flat_map(|why| worlds(8).map(move |world| (why, world))) {
        for cpu in 0..3 {
            run_on(cpu);
            passing(&mut world, 40 * KIB);
        }
        run_on(0);
        assert_eq!(world.audit().cpu_runs, 3, "{why}");
        match why {
            0 => drop(world.heap.reclaim().balance_pressure(Level::Some, Cause::Pressure)),
            1 => drop(world.heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure)),
            2 => drop(world.heap.purge()),
            // Of classes that are idle for long, while the program goes on otherwise.
            _ => (0..20).for_each(|_| {
                passing(&mut world, 100);
                calm(&world);
            }),
        }
        assert_eq!(world.audit().cpu_runs, 0, "{why}");
    }
}

#[test]
fn an_allocation_short_of_memory_takes_them_from_all_cpus() {
    for lockless in [true, false] {
        let mut fake = Fake::new();
        (fake.lockless, fake.window) = (lockless, 32 * MIB);
        let mut world = loaded(fake, 16);
        run_on(1);
        passing(&mut world, MIB);
        assert_eq!(world.audit().cpu_runs, 1);
        run_on(0);
        world.may_fail = true;
        let whole = (0..).take_while(|_| world.alloc(MIB).is_some()).count();
        assert_eq!(world.audit().cpu_runs, 0, "{whole} MiB");
    }
}

#[test]
fn wrong_frees_of_runs_in_buckets_are_named() {
    for mut world in worlds(32) {
        let free = |world: &World, addr: usize| {
            // SAFETY: it is not: that is what is tested. The engine must not touch what is held.
            unsafe { world.heap.free(addr as *mut u8) }
        };
        let [first, second] = [0; 2].map(|_| world.alloc(40 * KIB).unwrap());
        let [first, second] = [first, second].map(|i| world.held[i].addr);
        free(&world, first + 64);
        assert_eq!(world.fake().take_misuses(), [(InteriorPointer, first + 64)]);
        free(&world, first + PAGE);
        assert_eq!(world.fake().take_misuses(), [(InteriorPointer, first + PAGE)]);
        free_rest(&mut world);
        let (top, below) = if world.heap.alloc(40 * KIB) as usize == first { (first, second) } else { (second, first) };
        free(&world, top);
        free(&world, top);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, top)]);
        // The second of two in a bucket shows when the bucket is emptied.
        free(&world, below);
        world.heap.purge();
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, below)]);
        free(&world, below);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, below)]);
    }
}

/// The former copies of a buffer that grows are of no use to it. One or two may lie in buckets, but not when more becomes
/// resident. The zone hears of their frees when they are given back, so that it releases them.
#[test]
fn former_copies_are_released() {
    let by_parts: fn(usize) -> usize = |size| size / 5;
    for (from, step) in [(100 * KIB, by_parts), (256 * KIB, |_| 24 * KIB)] {
        for world in worlds(32) {
            let mut size = from;
            let mut buffer = world.heap.alloc(size);
            let mut most = 0;
            while size < 2 * MIB {
                size += step(size);
                let longer = world.heap.alloc(size);
                // Before the third in a row they are no former copies.
                let idle = world.heap.figures().usage().idle * 100 / size;
                most = most.max(if size > 2 * from { idle } else { 0 });
                // SAFETY: allocated here, and given up for the longer one.
                unsafe { world.heap.free(buffer) };
                buffer = longer;
            }
            // SAFETY: allocated here.
            unsafe { world.heap.free(buffer) };
            assert!(most < 50, "{most} % of a copy are idle beside it");
        }
    }
}

/// A sample's free is to be seen: it ends in no bucket.
#[test]
fn a_sampled_run_is_of_no_class() {
    for world in worlds(8) {
        let heap = &world.heap;
        heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
        let origin = || weir_core::profile::recorder::Origin { frames: &[1], mean: 1, random: 0 };
        let block = heap.samples().alloc(layout(16, 100 * KIB), false, origin());
        // SAFETY: allocated here; so in what follows.
        unsafe { heap.free(block) };
        assert_eq!(heap.audit().unwrap().cpu_runs, 0);
        let block = heap.alloc(100 * KIB);
        // SAFETY: as above.
        let block = unsafe { heap.samples().realloc(block, 120 * KIB, origin()) };
        // SAFETY: as above.
        unsafe { heap.free(block) };
        let audit = heap.audit().unwrap();
        assert!(audit.runs == 2 && audit.cpu_runs <= 1, "the one that was copied, if it was");
    }
}
