//! Memory that stays after a peak: of the memory that describes free pages, and of buckets' shells.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weir_core::base::level::Level;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::caches::user_cache::{CacheId, Spec};
use weir_core::platform::Diagnostics;

use crate::fake::{Fake, memory};
use crate::held::World;
use crate::reclaim::order::{RUN, calm, free_where, full_pageblocks, pressure};

const MIB: usize = 1 << 20;
/// Bytes of class map and descriptors for a pageblock.
const DESCRIPTION: usize = PAGEBLOCK / PAGE * 37;

/// Resident bytes of the heap's arrays: of the window that follows the heap's.
fn arrays(world: &World) -> usize {
    let windows = world.fake().windows();
    memory::resident(windows[1]) * PAGE
}

#[test]
fn what_describes_free_memory_goes_back_in_calm_times() {
    let mut world = full_pageblocks(false, 40);
    // Every page has been in use, as a slab's or a run's of its own.
    world.free_all();
    (0..4000).for_each(|_| assert!(world.alloc(4000).is_some()));
    let peak = arrays(&world);
    assert!(peak > 8 * DESCRIPTION, "{peak} bytes");
    world.free_all();
    (0..20).for_each(|_| calm(&world));
    // A page for pageblocks' own state, and the ends of arrays.
    let left = arrays(&world);
    assert!(left <= 6 * PAGE, "{left} of {peak} bytes of metadata are left");
    // All of it can be used again.
    (0..4000).for_each(|_| assert!(world.alloc(4000).is_some()));
}

#[test]
fn on_longer_pages_of_the_system_the_descriptors_go_and_the_class_map_stays() {
    let mut fake = Fake::new();
    fake.unit = 16 << 10;
    let mut world = World::new(fake);
    (0..24_000).for_each(|_| assert!(world.alloc(4000).is_some()));
    let peak = arrays(&world);
    assert!(peak > 40 * DESCRIPTION, "{peak} bytes");
    world.free_all();
    world.heap.purge();
    let left = arrays(&world);
    assert!(left < peak / 10, "{left} of {peak} bytes of metadata are left");
}

#[test]
fn pressure_and_trim_take_it_at_once() {
    for trim in [false, true] {
        let mut world = full_pageblocks(false, 24);
        world.free_all();
        (0..3000).for_each(|_| assert!(world.alloc(4000).is_some()));
        world.free_all();
        let bytes = if trim { world.heap.purge() } else { pressure(&world, Level::Severe) };
        assert_eq!(bytes, 24 * PAGEBLOCK);
        let left = arrays(&world);
        assert!(left <= 6 * PAGE, "{left} bytes");
    }
}

#[test]
fn what_is_in_use_keeps_its_description_and_no_more() {
    let mut world = full_pageblocks(false, 64);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    // One run in each eighth pageblock stays: of each group, seven go.
    free_where(&mut world, |addr| (addr - base) % (8 * PAGEBLOCK) != 0);
    pressure(&world, Level::Some);
    let released = world.fake().metadata_released.load(Relaxed);
    // The eighth's own descriptors, half a page of its neighbour's, and the group's class map stay.
    assert_eq!(released, 8 * (31 * PAGE));
    // A group that becomes free later goes whole, with the pages that pageblocks share.
    world.free_all();
    pressure(&world, Level::Some);
    assert_eq!(world.fake().metadata_released.load(Relaxed), released + 8 * 37 * PAGE);
    assert!(arrays(&world) <= 6 * PAGE);
}

#[test]
fn a_heap_that_is_used_in_turns_keeps_what_describes_it() {
    let mut world = full_pageblocks(false, 40);
    for _ in 0..10 {
        world.free_all();
        (0..40 * PAGEBLOCK / RUN).for_each(|_| assert!(world.alloc(RUN).is_some()));
        calm(&world);
    }
    assert_eq!(world.fake().metadata_released.load(Relaxed), 0);
}

/// While the memory behind descriptions is on its way, another thread takes all that it can get, and writes to it.
#[test]
fn pages_cannot_be_taken_while_their_description_goes() {
    let mut world = full_pageblocks(false, 64);
    world.free_all();
    let heap = &world.leak().heap;
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    heap.platform().during_release(move || {
        let objects: Vec<_> = (0..200).map(|i| heap.alloc(if i % 2 == 0 { 3000 } else { 40_000 })).collect();
        assert!(objects.iter().all(|object| !object.is_null()));
        count.fetch_add(objects.len(), Relaxed);
        std::mem::forget(objects.clone());
        HELD.lock().unwrap().extend(objects.into_iter().map(|object| object as usize));
    });
    heap.purge();
    heap.purge();
    let held = std::mem::take(&mut *HELD.lock().unwrap());
    assert_eq!(held.len(), taken.load(Relaxed));
    assert!(heap.platform().metadata_released.load(Relaxed) > 0);
    // Each is known for what it is, and given back once.
    let audit = heap.audit().unwrap();
    assert_eq!(audit.runs, held.len() / 2);
    // SAFETY: taken above, once.
    held.into_iter().for_each(|object| unsafe { heap.free(object as *mut u8) });
    assert_eq!(heap.platform().take_misuses(), []);
    heap.audit().unwrap();
}

static HELD: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());

#[test]
fn refused_releases_of_metadata_are_tried_once() {
    let mut world = full_pageblocks(false, 32);
    // What a CPU holds of short runs goes with the window.
    world.fake().tunables().cache_idle_windows.set(0);
    world.free_all();
    world.fake().keeps_metadata.store(true, Relaxed);
    (0..10).for_each(|_| calm(&world));
    assert_eq!(world.fake().metadata_released.load(Relaxed), 0);
    // Four groups of pageblocks, and the CPU's slots, looked at once.
    let refusals = world.fake().metadata_refusals.load(Relaxed);
    assert!((4..=5).contains(&refusals), "{refusals} calls");
    // A wild pointer into what is free is no block's, whatever became of its description.
    let base = world.fake().windows()[0].addr;
    // SAFETY: a wrong free, which is named and not obeyed.
    unsafe { world.heap.free((base + 5 * MIB) as *mut u8) };
    assert_eq!(world.fake().take_misuses().len(), 1);
}

#[test]
fn the_first_pageblock_may_lack_pages() {
    let mut fake = Fake::new();
    fake.skipped = 37;
    let mut world = World::new(fake);
    (0..5000).for_each(|i| assert!(world.alloc(16 + i % 6000).is_some()));
    let base = world.fake().windows()[0].addr;
    let lowest = world.held.iter().map(|block| block.addr).min().unwrap();
    assert!((base + 37 * PAGE..base + 64 * PAGE).contains(&lowest), "{lowest:#x} in a window from {base:#x}");
    assert_eq!(world.audit().hole_pages, 37);
    free_where(&mut world, |addr| addr % 3 == 0);
    (0..20).for_each(|_| calm(&world));
}

/// A cache of small objects, of which `count` were in use and are free.
fn cache(world: &World, count: usize) -> CacheId {
    let spec = Spec { name: b"shells", size: 16, ..Spec::default() };
    let id = world.heap.user_caches().make(&spec).unwrap();
    let objects: Vec<_> = (0..count).map(|_| world.heap.user_caches().alloc(id)).collect();
    assert!(objects.iter().all(|object| !object.is_null()));
    // SAFETY: allocated above, once.
    objects.into_iter().for_each(|object| unsafe { world.heap.user_caches().free(id, object) });
    id
}

/// Bytes of shells with memory behind them, as far as the engine knows.
fn shells(world: &World) -> usize {
    world.fake().stats().shell_bytes.load(Relaxed) as usize
}

#[test]
fn shells_go_back_in_calm_times_under_pressure_by_trim_and_after_their_cache() {
    // 8 bytes for each object, and a little more.
    const COUNT: usize = 400_000;
    for how in 0..4 {
        let mut world = World::new(Fake::new());
        let id = cache(&world, COUNT);
        assert!(shells(&world) > 8 * COUNT, "{} bytes of shells", shells(&world));
        assert!(world.audit().depot_objects > COUNT / 2);
        match how {
            0 => (0..60).for_each(|_| calm(&world)),
            1 => drop([pressure(&world, Level::Severe)]),
            2 => drop([world.heap.purge()]),
            _ => {
                // SAFETY: nobody uses it any more.
                unsafe { world.heap.user_caches().destroy(id) }.unwrap();
                (0..3).for_each(|_| calm(&world));
            }
        }
        // Pressure leaves some, as it may stop more from being made.
        let left = if how == 1 { 5 * (16 << 10) } else { 0 };
        assert_eq!(shells(&world), left, "way {how}");
        // They are there again when they are wanted.
        world.fake().pass_ms(10_000);
        cache(&world, COUNT);
        assert!(world.audit().depot_objects > COUNT / 2);
        world.free_all();
    }
}

#[test]
fn a_cache_that_is_used_in_turns_keeps_its_shells() {
    let world = World::new(Fake::new());
    let id = cache(&world, 100_000);
    for _ in 0..6 {
        calm(&world);
        let released = world.fake().metadata_released.load(Relaxed);
        let objects: Vec<_> = (0..100_000).map(|_| world.heap.user_caches().alloc(id)).collect();
        // SAFETY: allocated above, once.
        objects.into_iter().for_each(|object| unsafe { world.heap.user_caches().free(id, object) });
        assert_eq!(world.fake().metadata_released.load(Relaxed), released);
    }
    assert_eq!(world.fake().metadata_released.load(Relaxed), 0);
}

#[test]
fn depots_do_not_get_shells_whose_memory_is_on_its_way() {
    let world = World::new(Fake::new());
    let id = cache(&world, 200_000);
    let heap = &world.leak().heap;
    heap.platform().during_release(move || {
        let objects: Vec<_> = (0..5000).map(|_| heap.user_caches().alloc(id) as usize).collect();
        // SAFETY: allocated above, once.
        objects.into_iter().for_each(|object| unsafe { heap.user_caches().free(id, object as *mut u8) });
    });
    heap.purge();
    heap.purge();
    heap.audit().unwrap();
    assert_eq!(heap.platform().take_misuses(), []);
    assert!(heap.platform().metadata_released.load(Relaxed) > MIB);
}

#[test]
fn slots_of_buckets_go_back_at_rest() {
    for lockless in [true, false] {
        let mut fake = Fake::new();
        fake.lockless = lockless;
        let mut world = World::new(fake);
        for cpu in 0..4 {
            crate::fake::run_on(cpu);
            (0..40).for_each(|i| assert!(world.alloc(16 + 300 * i).is_some()));
            world.free_all();
        }
        let released = || world.fake().metadata_released.load(Relaxed);
        // A window in which something moved, one in which nothing did, and the one after it.
        calm(&world);
        assert_eq!(released(), 0);
        (0..3).for_each(|_| calm(&world));
        assert!(released() >= 4 * 46 * PAGE, "{} bytes", released());
        (0..40).for_each(|i| assert!(world.alloc(16 + 300 * i).is_some()));
    }
}
