//! Run classes: what a CPU's buckets hold of runs, what they give up and when, and what is wrong in a free.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree::{DoubleFree, InteriorPointer};
use weir_core::base::level::Level;
use weir_core::base::run_class::{ALL, size_of_class};
use weir_core::base::units::PAGE;
use weir_core::platform::Diagnostics;

use crate::fake::{Fake, run_on};
use crate::held::World;
use crate::policy::calm;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// What one CPU's buckets may hold where little is in use.
const BUDGET: usize = 2 * MIB;

fn worlds() -> impl Iterator<Item = World> {
    [true, false].into_iter().map(|lockless| {
        let mut fake = Fake::new();
        fake.lockless = lockless;
        World::new(fake)
    })
}

/// Allocates `size` bytes and frees them; the address.
fn passing(world: &mut World, size: usize) -> usize {
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
    for mut world in worlds() {
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
        passing(&mut world, 96 * KIB);
        assert_eq!(taken(&world), before + 1, "of another class");
        passing(&mut world, 98 * KIB);
        let before = taken(&world);
        passing(&mut world, 104 * KIB);
        assert_eq!(taken(&world), before + 1, "of the class, but too long for what there is");
        assert_eq!(passing(&mut world, 104 * KIB), passing(&mut world, 98 * KIB), "a longer one does");
        world.finish();
    }
}

#[test]
fn a_run_from_a_bucket_is_wiped_where_zeros_are_asked_for() {
    for mut world in worlds() {
        // Its contents are checked there, to the end of the class.
        let addr = passing(&mut world, 200 * KIB);
        let i = world.alloc_zeroed(200 * KIB - 100).unwrap();
        assert_eq!(world.held[i].addr, addr);
        world.finish();
    }
}

#[test]
fn a_run_that_is_resized_in_place_is_of_the_class_of_its_new_length() {
    for mut world in worlds() {
        let mut in_place = 0;
        for size in [300 * KIB, 70 * KIB] {
            // Of the same class: it stays what it is. (The audit knows how long runs of a class are.)
            let i = world.alloc(size).unwrap();
            let addr = world.held[i].addr;
            world.realloc(i, size + 1);
            world.audit();
            let i = world.held.iter().position(|block| block.addr == addr).expect("it stayed");
            world.free(i, false);
            assert_eq!(world.audit().cpu_runs, 1);
            for wanted in [size * 3 / 4, size * 2] {
                let i = world.alloc(size).unwrap();
                assert_eq!(world.held[i].addr, addr);
                world.realloc(i, wanted);
                world.audit();
                in_place += usize::from(world.held[0].addr == addr);
                world.free_all();
                assert_eq!(world.audit().cpu_runs, 1, "{size} to {wanted}");
                world.heap.trim();
                assert_eq!(passing(&mut world, size), addr, "the lowest there is");
            }
            world.heap.trim();
        }
        assert!(in_place >= 3);
        world.finish();
    }
}

#[test]
fn what_a_cpu_holds_is_bounded() {
    for mut world in worlds() {
        let held = |world: &World| {
            world.heap.publish();
            world.fake().stats().idle_bytes.load(Relaxed) as usize - world.audit().idle_pages * PAGE
        };
        // One after the other and all at once, upwards and downwards.
        for class in ALL.chain(ALL.rev()) {
            passing(&mut world, size_of_class(class));
            assert!(held(&world) <= BUDGET);
        }
        ALL.for_each(|class| assert!(world.alloc(size_of_class(class)).is_some()));
        world.free_all();
        assert!((MIB..=BUDGET).contains(&held(&world)), "{} bytes", held(&world));
        (0..100).for_each(|_| assert!(world.alloc(40 * KIB).is_some()));
        world.free_all();
        assert!(held(&world) <= BUDGET);
        world.finish();
    }
}

#[test]
fn a_class_that_frees_on_displaces_others() {
    for mut world in worlds() {
        // The budget is used up by others.
        for _ in 0..2 {
            ALL.for_each(|class| assert!(world.alloc(size_of_class(class)).is_some()));
            world.free_all();
        }
        (0..1000).for_each(|_| assert!(passing(&mut world, 900 * KIB) > 0));
        let before = taken(&world);
        (0..100).for_each(|_| assert!(passing(&mut world, 900 * KIB) > 0));
        assert_eq!(taken(&world), before);
        world.finish();
    }
}

/// A program that has one block at a time, of many sizes, needs no more memory than for the longest.
#[test]
fn runs_in_buckets_go_before_memory_becomes_resident() {
    for mut world in worlds() {
        let resident = |world: &World| {
            let audit = world.audit();
            (audit.run_pages + audit.slab_pages + audit.idle_pages) * PAGE
        };
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
        world.free_all();
        // And so where a block is mapped on its own.
        passing(&mut world, MIB);
        world.alloc(8 * MIB).unwrap();
        assert_eq!(world.audit().cpu_runs, 0);
        world.finish();
    }
}

#[test]
fn reclaim_takes_them_from_all_cpus() {
    for (why, mut world) in (0..4).flat_map(|why| worlds().map(move |world| (why, world))) {
        for cpu in 0..3 {
            run_on(cpu);
            passing(&mut world, MIB - PAGE);
            passing(&mut world, 50 * KIB);
        }
        run_on(0);
        assert!(world.audit().cpu_runs >= 3, "{why}");
        match why {
            0 => drop(world.heap.balance_pressure(Level::Some, Cause::Pressure)),
            1 => drop(world.heap.balance_pressure(Level::Severe, Cause::Pressure)),
            2 => drop(world.heap.trim()),
            // Of classes that are idle for long, while the program goes on otherwise.
            _ => (0..20).for_each(|_| {
                passing(&mut world, 100);
                calm(&world);
            }),
        }
        assert_eq!(world.audit().cpu_runs, 0, "{why}");
        world.finish();
    }
}

#[test]
fn an_allocation_short_of_memory_takes_them_from_all_cpus() {
    for lockless in [true, false] {
        let mut fake = Fake::new();
        (fake.lockless, fake.window) = (lockless, 32 * MIB);
        let mut world = World::new(fake);
        run_on(1);
        [MIB, 900 * KIB].into_iter().for_each(|size| assert!(world.alloc(size).is_some()));
        world.free_all();
        assert_eq!(world.audit().cpu_runs, 2);
        run_on(0);
        world.may_fail = true;
        let whole = (0..).take_while(|_| world.alloc(MIB).is_some()).count();
        assert_eq!(world.audit().cpu_runs, 0, "{whole} MiB");
        world.finish();
    }
}

#[test]
fn wrong_frees_of_runs_in_buckets_are_named() {
    for mut world in worlds() {
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
        world.free_all();
        let (top, below) = if world.heap.alloc(40 * KIB) as usize == first { (first, second) } else { (second, first) };
        free(&world, top);
        free(&world, top);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, top)]);
        // The second of two in a bucket shows when the bucket is emptied.
        free(&world, below);
        world.heap.trim();
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, below)]);
        free(&world, below);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, below)]);
        world.finish();
    }
}

/// The former copies of a buffer that grows are of no use to it, and go below at once: they are not kept in buckets.
#[test]
fn former_copies_are_not_kept() {
    for mut world in worlds() {
        let mut size = 256 * KIB;
        let mut buffer = world.heap.alloc(size);
        let mut kept = vec![];
        while size < 900 * KIB {
            size += size / 5;
            let longer = world.heap.alloc(size);
            // SAFETY: allocated here, and given up for the longer one.
            unsafe { world.heap.free(buffer) };
            buffer = longer;
            kept.push(world.heap.audit().unwrap().cpu_runs);
        }
        assert_eq!((kept[0], kept[kept.len() - 1]), (1, 0), "{kept:?}");
        // SAFETY: allocated here.
        unsafe { world.heap.free(buffer) };
        world.may_fail = true;
        world.finish();
    }
}

/// A sample's free is to be seen: it ends in no bucket.
#[test]
fn a_sampled_run_is_of_no_class() {
    for world in worlds() {
        let heap = &world.heap;
        heap.switch_profile(1, 0).unwrap();
        let origin = || weir_core::profile::recorder::Origin { frames: &[1], random: 0 };
        let block = heap.alloc_sampled(100 * KIB, 16, false, origin());
        // SAFETY: allocated here; so in what follows.
        unsafe { heap.free(block) };
        assert_eq!(heap.audit().unwrap().cpu_runs, 0);
        let block = heap.alloc(100 * KIB);
        // SAFETY: as above.
        let block = unsafe { heap.realloc_sampled(block, 120 * KIB, origin()) };
        // SAFETY: as above.
        unsafe { heap.free(block) };
        let audit = heap.audit().unwrap();
        assert!(audit.runs == 0 && audit.cpu_runs <= 1, "the one that was copied, if it was");
        world.finish();
    }
}
