//! The figures against what the test holds and what the kernel says is resident.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::prelude::*;
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::caches::user_cache::Spec;
use weir_core::platform::{Diagnostics, Memory};
use weir_core::reclaim::Usage;
use weir_core::telemetry::stats::Stats;

use crate::fake::{Fake, run_on, run_on_none};
use crate::heap::model::{Step, apply, config, step, variant, world};
use crate::held::World;

const MIB: usize = 1 << 20;

/// The figures that the test finds by itself.
struct Truth {
    live: usize,
    /// The part of the live bytes on pages that are not resident.
    untouched: usize,
    /// Resident bytes of pages that what is held lies on, less what is held of them.
    beside: usize,
    resident: usize,
    metadata: usize,
}

fn truth(world: &World) -> Truth {
    let mut pages: HashMap<usize, usize> = HashMap::new();
    let mut live = 0;
    for (addr, len) in world.usable() {
        live += len;
        let mut at = addr;
        while at < addr + len {
            let end = ((at & !(PAGE - 1)) + PAGE).min(addr + len);
            *pages.entry(at & !(PAGE - 1)).or_default() += end - at;
            at = end;
        }
    }
    let is_resident = |page: usize| {
        let run = weir_core::base::run::Run { addr: page, len: PAGE };
        world.fake().resident_pages(run).unwrap()[0] == 1
    };
    let (mut untouched, mut beside) = (0, 0);
    for (page, held) in pages {
        if is_resident(page) {
            beside += PAGE - held;
        } else {
            untouched += held;
        }
    }
    let (resident, metadata) = world.fake().resident_bytes();
    Truth { live, untouched, beside, resident, metadata }
}

/// Holds the figures against the truth; they are exact where no object and no run is in a bucket or a depot.
pub fn check(world: &World) -> Usage {
    let (usage, truth) = (world.heap.figures().usage(), truth(world));
    world.heap.figures().publish();
    let stats = world.fake().stats();
    assert_eq!(stats.live_bytes.load(Relaxed) as usize, truth.live);
    assert_eq!(stats.metadata_bytes.load(Relaxed) as usize, truth.metadata);
    // It reads metadata that was never written, so that it is resident from then on.
    let audit = world.audit();
    assert_eq!(usage.live, truth.live);
    assert_eq!(usage.metadata, truth.metadata);
    assert_eq!(usage.resident(), truth.resident, "{usage:?}");
    assert!(usage.untouched >= truth.untouched, "{usage:?}, untouched {}", truth.untouched);
    if audit.cpu_objects + audit.depot_objects + audit.cpu_runs == 0 {
        assert_eq!((usage.untouched, usage.fragmented), (truth.untouched, truth.beside));
    } else {
        // The rest is of cached objects and runs, which count as idle.
        assert!(usage.untouched - truth.untouched <= usage.idle, "{usage:?}");
    }
    usage
}

/// Holds the sum of the figures against the truth.
pub fn check_sum(world: &World) {
    let usage = world.heap.figures().usage();
    let (resident, _) = world.fake().resident_bytes();
    assert_eq!(usage.resident(), resident, "{usage:?}");
}

/// Live, idle, fragmented and metadata as the page of counters has them.
fn page(stats: &Stats) -> [usize; 4] {
    [&stats.live_bytes, &stats.idle_bytes, &stats.fragmented_bytes, &stats.metadata_bytes]
        .map(|figure| figure.load(Relaxed) as usize)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_parts_add_up_after_every_step(v in variant(), steps in prop::collection::vec(step(), 1..60)) {
        let mut world = world(v);
        for step in &steps {
            apply(&mut world, step);
            check(&world);
        }
        // All buckets and depots are empty after it: then every part is exact by itself.
        apply(&mut world, &Step::Report(true));
        apply(&mut world, &Step::Trim);
        let usage = check(&world);
        prop_assert!(world.audit().cpu_objects == 0);
        world.free_all();
        world.heap.purge();
        let after = check(&world);
        prop_assert_eq!((after.live, after.untouched, after.fragmented), (0, 0, 0));
        prop_assert!(after.metadata <= usage.metadata + 64 * PAGE);
    }
}

fn thinned(fake: Fake, count: usize, size: usize) -> World {
    let mut world = World::new(fake);
    (0..count).for_each(|_| assert!(world.alloc(size).is_some()));
    for i in (0..count).rev().filter(|i| i % 20 > 0) {
        world.free(i, false);
    }
    world
}

/// Issue 10: 19 of 20 objects freed, and 234 MiB said to be in use where 15 were.
#[test]
fn free_objects_in_slabs_are_not_live() {
    for huge in [false, true] {
        let fake = Fake::new();
        fake.huge.store(huge, Relaxed);
        let world = thinned(fake, 20_000, 1000);
        let usage = check(&world);
        assert_eq!(usage.live, 1000 * 1024);
        // One object in 20 keeps its page, which has four.
        assert!(usage.fragmented > 2 * usage.live && usage.idle > 10 * MIB, "{usage:?}");
        world.heap.purge();
        let after = check(&world);
        assert_eq!((after.live, after.untouched), (usage.live, 0));
        // What was fragmented could not be released, and nearly all that was idle could.
        assert!(after.fragmented >= usage.fragmented && after.idle < 64 * PAGE, "{after:?}");
    }
}

#[test]
fn what_is_not_touched_is_not_resident() {
    for huge in [false, true] {
        let fake = Fake::new();
        fake.huge.store(huge, Relaxed);
        let world = World::new(fake);
        let before = world.heap.figures().usage();
        assert_eq!(before, Usage::default());
        // A run, and a block mapped on its own.
        let blocks = [world.heap.alloc(MIB), world.heap.alloc(64 * MIB)];
        let usage = world.heap.figures().usage();
        assert_eq!((usage.live, usage.untouched, usage.idle), (65 * MIB, 65 * MIB, 0));
        for block in blocks {
            // SAFETY: allocated above, and long enough.
            unsafe { block.add(300_000).write_bytes(1, 100_000) };
        }
        let usage = world.heap.figures().usage();
        let touched = 2 * ((400_000usize.next_multiple_of(PAGE)) - 300_000 / PAGE * PAGE);
        assert_eq!((usage.live, usage.untouched), (65 * MIB, 65 * MIB - touched));
        assert_eq!(usage.resident(), world.fake().resident_bytes().0);
        // The run goes past its CPU's bucket.
        run_on_none();
        // SAFETY: allocated above, not used any more.
        blocks.into_iter().for_each(|block| unsafe { world.heap.free(block) });
        run_on(0);
        let usage = world.heap.figures().usage();
        assert_eq!((usage.live, usage.untouched, usage.idle), (0, 0, touched));
    }
}

#[test]
fn a_retained_block_is_idle_and_a_released_one_is_gone() {
    let mut world = World::new(Fake::new());
    let block = world.alloc(32 * MIB).unwrap();
    assert_eq!(check(&world).live, 32 * MIB);
    world.free(block, false);
    let usage = check(&world);
    assert_eq!((usage.live, usage.idle), (0, 32 * MIB));
    world.heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
    assert_eq!(check(&world).idle, 0);
}

/// Where the platform cannot say what is resident, what was handed out counts as such.
#[test]
fn without_the_kernel_the_counters_tell() {
    let world = thinned(Fake::new(), 20_000, 1000);
    let exact = check(&world);
    world.fake().is_blind.store(true, Relaxed);
    let usage = world.heap.figures().usage();
    world.fake().is_blind.store(false, Relaxed);
    // The last slab's pages beyond the last object were never touched. Neither all of a CPU's slots were touched, nor
    // all of the 8 MiB that the arrays describe.
    assert_eq!((usage.live, usage.fragmented), (exact.live, exact.fragmented));
    assert!(usage.idle - exact.idle <= 32 * PAGE, "{usage:?}, {exact:?}");
    assert!((exact.metadata..exact.metadata + 4 * MIB).contains(&usage.metadata), "{usage:?}, {exact:?}");
}

/// The page's figures are of counters alone: the same sum, but for what was handed out and not touched.
#[test]
fn the_page_of_counters_has_the_same_sum() {
    let world = thinned(Fake::new(), 20_000, 1000);
    for _ in 0..2 {
        let usage = check(&world);
        let [live, idle, fragmented, metadata] = page(world.fake().stats());
        assert_eq!((live, metadata), (usage.live, usage.metadata));
        let sum = live + idle + fragmented + metadata;
        assert!((usage.resident()..=usage.resident() + 32 * PAGE).contains(&sum), "{sum}, {usage:?}");
        // Whole pages inside slabs in use are fragmented here.
        assert!(fragmented >= usage.fragmented && idle <= usage.idle);
        world.heap.purge();
    }
}

/// Memory that is isolated for a release is neither the program's nor lost. The figures are the same before, during
/// and after it, but for what went.
#[test]
fn isolated_memory_is_not_live() {
    let mut world = thinned(Fake::new(), 20_000, 1000);
    let runs: Vec<_> = (0..40).map(|_| world.alloc(MIB).unwrap()).collect();
    world.past_buckets(|world| runs.into_iter().rev().step_by(2).for_each(|i| world.free(i, false)));
    let before = check(&world);
    let heap = &world.leak().heap;
    let seen: &'static Mutex<Vec<Usage>> = Box::leak(Box::default());
    heap.platform().during_release(|| seen.lock().unwrap().push(heap.figures().usage()));
    heap.purge();
    let seen = seen.lock().unwrap();
    // A drain that releases a CPU's slots may hold up to a batch of objects just then.
    let live = before.live..=before.live + 64 * 1024;
    assert!(seen.len() > 20 && seen.iter().all(|usage| live.contains(&usage.live)), "{live:?} {seen:#?}");
    assert!(seen.iter().skip(1).all(|usage| usage.live == before.live && usage.untouched == 0), "{seen:#?}");
    assert!(seen.windows(2).all(|pair| pair[1].resident() <= pair[0].resident()), "{seen:#?}");
    assert_eq!(heap.platform().take_misuses(), []);
}

/// The background thread hears of pressure between two parts of a measurement.
#[cfg(debug_assertions)]
#[test]
fn a_measurement_is_made_in_parts_of_so_many_looks() {
    const LOOKS: usize = 8;
    let world = World::new(Fake::new());
    for size in [100, 5000, MIB, 5 * MIB] {
        (0..60).for_each(|_| assert!(!world.heap.alloc(size).is_null()));
    }
    let usage = world.heap.figures().usage();
    let at = || world.fake().stats().measured.at.load(Relaxed);
    let (mut measurement, mut parts) = (weir_core::heap::figures::Measurement::default(), 0);
    let found = loop {
        let visits = world.heap.figures().pageblock_visits();
        let found = world.heap.figures().measure(&mut measurement, LOOKS, 0);
        // A part may end with a block, of which all pageblocks are looked at; and each look may be at a slab's too.
        assert!(world.heap.figures().pageblock_visits() - visits <= 2 * LOOKS);
        parts += 1;
        match found {
            Some(found) => break found,
            None => assert_eq!(at(), 0, "nothing is told before it is done"),
        }
    };
    assert_eq!((found, at() > 0), (usage, true));
    // 32 pageblocks and more of runs, 60 blocks of three each.
    assert!(parts >= (32 + 60 * 3) / (LOOKS + 3), "{parts}");
    world.leak();
}

/// Some pageblocks of a very long block are looked at, at equal distances.
#[test]
fn a_very_long_block_is_measured_by_samples() {
    const GIB: usize = 1 << 30;
    let world = World::new(Fake::new());
    let block = world.heap.alloc(17 * GIB);
    assert!(!block.is_null());
    assert_eq!((world.heap.figures().usage().live, world.heap.figures().usage().untouched), (17 * GIB, 17 * GIB));
    // A page of each pageblock of the first 3 GiB.
    // SAFETY: inside the block.
    (0..3 * GIB).step_by(PAGEBLOCK).for_each(|at| unsafe { block.add(at).write(1) });
    let usage = world.heap.figures().usage();
    assert_eq!(usage.live - usage.untouched, 3 * GIB / PAGEBLOCK * PAGE);
    // SAFETY: allocated above, not used any more.
    unsafe { world.heap.free(block) };
}

/// Objects are live of caches with per-CPU buckets and of those without, of which there may be any number.
#[test]
fn objects_of_user_caches_are_live_as_blocks_are() {
    const CACHES: usize = 300;
    const OBJECTS: usize = 40;
    let world = World::new(Fake::new());
    let ids: Vec<_> = (0..CACHES)
        .map(|i| world.heap.user_caches().make(&Spec { name: b"figures", size: 3000 + i, ..Spec::default() }).unwrap())
        .collect();
    assert!(ids.iter().any(|id| id.number() > 256));
    let (mut objects, mut live) = (Vec::new(), 0);
    for &id in &ids {
        for _ in 0..OBJECTS {
            let object = world.heap.user_caches().alloc(id);
            // SAFETY: allocated just now, and so long.
            unsafe { object.write_bytes(1, 3000) };
            objects.push((id, object));
        }
        live += OBJECTS * world.heap.user_caches().stats(id).size;
    }
    let check_sum = |live: usize| {
        let (usage, (resident, metadata)) = (world.heap.figures().usage(), world.fake().resident_bytes());
        assert_eq!((usage.live, usage.resident(), usage.metadata), (live, resident, metadata));
        world.heap.figures().publish();
        assert_eq!(world.fake().stats().live_bytes.load(Relaxed) as usize, live);
        usage
    };
    check_sum(live);
    // SAFETY: allocated above, once.
    objects.into_iter().for_each(|(id, object)| unsafe { world.heap.user_caches().free(id, object) });
    check_sum(0);
    world.heap.purge();
    let usage = check_sum(0);
    assert_eq!((usage.idle, usage.fragmented), (0, 0));
    // SAFETY: nothing of them is in use.
    ids.into_iter().for_each(|id| unsafe { world.heap.user_caches().destroy(id) }.unwrap());
}

/// Figures of a heap that is used meanwhile are near, and the look at it does no harm.
#[test]
fn figures_are_gathered_while_threads_go_on() {
    const THREADS: usize = 4;
    let world = World::new(Fake::new());
    let (heap, left) = (&*world.heap, AtomicUsize::new(THREADS));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let left = &left;
            scope.spawn(move || {
                run_on(thread);
                let mut held: Vec<*mut u8> = Vec::new();
                for i in 0..4000_usize {
                    let size = [40, 1000, 5000, 50_000, 700_000][i * 7 % 5];
                    held.push(heap.alloc(size));
                    if held.len() > 50 {
                        // SAFETY: this thread's, not used any more.
                        unsafe { heap.free(held.swap_remove(i * 31 % 50)) };
                    }
                }
                // SAFETY: as above.
                held.into_iter().for_each(|block| unsafe { heap.free(block) });
                left.fetch_sub(1, Relaxed);
            });
        }
        while left.load(Relaxed) > 0 {
            // A thread holds at most 51 blocks, a fifth of them of 700,000 bytes.
            assert!(heap.figures().usage().live <= THREADS * 64 * MIB);
            heap.figures().publish();
            heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
        }
    });
    check(&world);
    // What is live is exact where no run is in a bucket.
    world.heap.purge();
    assert_eq!(check(&world).live, 0);
}
