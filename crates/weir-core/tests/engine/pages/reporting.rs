//! Reports of pages that are refused, filled up by the kernel, or not zero afterwards; and the switch of reports.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use weir_core::platform::{Diagnostics, rank};
use weir_core::telemetry::trace::{Event, Kind, Place};

use crate::fake::{Fake, run_on_node};
use crate::held::World;
use crate::reclaim::order::{RUN, bytes, calm, free_where, full_pageblocks, pressure, released, world};

fn events(world: &World) -> Vec<Event> {
    let trace = &world.fake().stats().trace;
    (0..trace.recorded()).filter_map(|n| trace.read(n)).collect()
}

#[test]
fn a_locked_page_keeps_its_pageblock_and_no_other() {
    let mut world = full_pageblocks(false, 40);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    let locked = [3, 4, 20].map(|block| Run { addr: base + block * PAGEBLOCK + 5 * PAGE, len: PAGE });
    *world.fake().pinned.lock().unwrap() = locked.to_vec();
    free_where(&mut world, |_| true);
    assert_eq!(pressure(&world, Level::Some), 37 * PAGEBLOCK);
    assert_eq!(world.audit().idle_pages, 3 * PAGEBLOCK_PAGES);
    assert!(events(&world).iter().any(|event| event.error == 22));
    // What nobody takes back is handed out first.
    let again = world.alloc(PAGEBLOCK).unwrap();
    let block = (world.held[again].addr - base) / PAGEBLOCK;
    assert!([3, 4, 20].contains(&block), "pageblock {block} was handed out");
    world.free(again, false);
    world.fake().pinned.lock().unwrap().clear();
    assert_eq!(pressure(&world, Level::Some), 3 * PAGEBLOCK);
}

#[test]
fn what_was_refused_is_not_tried_again_until_it_was_handed_out_or_memory_is_short() {
    let mut world = full_pageblocks(false, 4);
    // What a CPU holds of short runs goes with the window.
    world.fake().tunables().cache_idle_windows.set(0);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    *world.fake().pinned.lock().unwrap() = vec![Run { addr: base + 5 * PAGE, len: PAGE }];
    let tries =
        |world: &World| released(world).iter().filter(|run| run.addr <= base && base < run.addr + run.len).count();
    free_where(&mut world, |_| true);
    calm(&world);
    calm(&world);
    assert!(tries(&world) > 0);
    assert_eq!(world.audit().idle_pages, PAGEBLOCK_PAGES);
    (0..5).for_each(|_| calm(&world));
    assert_eq!(tries(&world), 0, "it was refused, and nothing has changed since");
    let i = world.alloc(PAGEBLOCK).unwrap();
    assert_eq!(world.held[i].addr, base);
    world.free(i, false);
    calm(&world);
    calm(&world);
    assert!(tries(&world) > 0, "it was handed out");
    calm(&world);
    assert_eq!(tries(&world), 0);
    pressure(&world, Level::Some);
    assert!(tries(&world) > 0, "memory is short");
    world.fake().pinned.lock().unwrap().clear();
}

#[test]
fn a_locked_page_keeps_its_run_and_no_other() {
    let mut world = full_pageblocks(false, 3);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    // Every second run of 64 KiB is free; one of them is locked.
    *world.fake().pinned.lock().unwrap() = vec![Run { addr: base + PAGEBLOCK + 2 * RUN, len: PAGE }];
    free_where(&mut world, |addr| ((addr - base) / RUN).is_multiple_of(2));
    assert_eq!(pressure(&world, Level::Some), 3 * PAGEBLOCK / 2 - RUN);
    assert_eq!(world.audit().idle_pages, RUN / PAGE);
    world.fake().pinned.lock().unwrap().clear();
}

#[test]
fn where_all_memory_is_locked_few_calls_are_made() {
    let mut world = full_pageblocks(false, 200);
    *world.fake().pinned.lock().unwrap() = vec![Run { addr: 0, len: usize::MAX / 2 }];
    free_where(&mut world, |_| true);
    (0..3).for_each(|_| calm(&world));
    assert_eq!(pressure(&world, Level::Severe), 0);
    let calls = world.fake().take_released().len();
    assert!(calls < 100, "{calls} calls");
    assert_eq!(world.audit().idle_pages, 200 * PAGEBLOCK_PAGES);
    // All of it can still be handed out.
    (0..200 * PAGEBLOCK / RUN).for_each(|_| assert!(world.alloc(RUN).is_some()));
    assert_eq!(world.audit().idle_pages, 0);
    world.fake().pinned.lock().unwrap().clear();
}

#[test]
fn what_was_given_back_lazily_is_not_known_to_be_zero() {
    let mut world = world(false);
    world.fake().tunables().report_lazily.set(1);
    let block = world.alloc(PAGEBLOCK).unwrap();
    calm(&world);
    world.free(block, false);
    (0..3).for_each(|_| calm(&world));
    assert_eq!(bytes(&released(&world)), PAGEBLOCK);
    // The fake leaves the contents, as the kernel does until it needs the pages; this checks for zeros.
    let block = world.alloc_zeroed(PAGEBLOCK).unwrap();
    world.free(block, false);
    // Under pressure it goes for good, and is zero then.
    pressure(&world, Level::Some);
    world.fake().tunables().report_lazily.set(0);
    let block = world.alloc_zeroed(PAGEBLOCK).unwrap();
    world.free(block, false);
}

/// The kernel keeps it until it is short itself: a limit of the process's own would never be met, and a trim release nothing.
#[test]
fn what_was_given_back_lazily_goes_for_good_under_pressure_and_where_the_program_asks() {
    let ways: [fn(&World); 2] = [|world| _ = pressure(world, Level::Some), |world| _ = world.heap.purge()];
    for goes in ways {
        let mut world = full_pageblocks(false, 8);
        world.fake().tunables().report_lazily.set(1);
        // What a CPU holds of short runs goes with the window.
        world.fake().tunables().cache_idle_windows.set(0);
        let kept = world.held[0].addr;
        free_where(&mut world, |addr| addr != kept);
        (0..4).for_each(|_| calm(&world));
        let lazily = bytes(&released(&world));
        assert_eq!((lazily, world.audit().idle_pages), (8 * PAGEBLOCK - RUN, 0));
        goes(&world);
        assert_eq!((bytes(&released(&world)), world.audit().idle_pages), (lazily, 0));
        goes(&world);
        assert!(released(&world).is_empty(), "it is gone");
    }
}

/// A slab does not tell pages that the kernel still has from those that are gone, so that nothing could recall them.
#[test]
fn pages_of_slabs_go_for_good_also_where_others_go_lazily() {
    let mut world = world(false);
    world.fake().really.store(true, Relaxed);
    world.fake().tunables().report_lazily.set(1);
    (0..4000).for_each(|_| assert!(world.alloc(1000).is_some()));
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    free_where(&mut world, |addr| (addr - base) % (16 << 10) >= 4096);
    (0..4).for_each(|_| calm(&world));
    assert!(events(&world).iter().any(|event| event.kind == Some(Kind::Slabs)));
    let usage = world.heap.figures().usage();
    assert!(usage.live > 900_000 && usage.idle < 500_000, "{usage:?}");
    world.free_all();
    world.heap.reclaim().balance_pressure(Level::None, Cause::Pressure);
    let blocks: Vec<_> = (0..16).map(|_| world.alloc_zeroed(PAGEBLOCK / 4).unwrap()).collect();
    assert_eq!(blocks.len(), 16);
}

#[test]
fn switching_off_waits_for_the_batch_in_flight_and_there_is_no_other() {
    let mut world = full_pageblocks(false, 64);
    free_where(&mut world, |_| true);
    let heap = &world.leak().heap;
    static WAITING: AtomicBool = AtomicBool::new(false);
    static OFF: AtomicBool = AtomicBool::new(false);
    static REPORTS: AtomicU64 = AtomicU64::new(0);
    let hook = move || {
        if WAITING.swap(true, SeqCst) {
            return;
        }
        std::thread::spawn(move || {
            heap.reclaim().set_reporting(false);
            REPORTS.store(heap.platform().stats().reports.load(SeqCst), SeqCst);
            OFF.store(true, SeqCst);
        });
        // Time for it to be switched off too early; a thread that has no CPU in this time is not.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!OFF.load(SeqCst), "switched off, with a batch in flight");
    };
    heap.platform().during_release(hook);
    heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    while !OFF.load(SeqCst) {
        std::thread::yield_now();
    }
    assert_eq!(heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure), 0);
    assert_eq!(heap.platform().stats().reports.load(SeqCst), REPORTS.load(SeqCst));
    let (audit, gone) = (heap.audit().unwrap(), heap.platform().stats().given_back[1].load(SeqCst) as usize);
    assert_eq!(audit.idle_pages + gone / PAGE, 64 * PAGEBLOCK_PAGES);
    assert!(audit.idle_pages > 0);
    heap.reclaim().set_reporting(true);
    heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    assert_eq!(heap.audit().unwrap().idle_pages, 0);
}

#[test]
fn the_worker_is_woken_by_enough_memory_and_no_less() {
    let mut world = world(false);
    world.fake().tunables().report_threshold.set(1 << 20);
    let runs: Vec<_> = (0..40).map(|_| world.alloc(RUN).map(|i| world.held[i].addr).unwrap()).collect();
    let notices = |world: &World| world.fake().notices.load(Relaxed);
    for (i, &addr) in runs.iter().enumerate() {
        let before = notices(&world);
        free_where(&mut world, |a| a == addr);
        assert_eq!(notices(&world) - before, usize::from(i == 15), "run {i}");
    }
    calm(&world);
    let run = world.alloc(PAGEBLOCK).unwrap();
    world.free(run, false);
    assert_eq!(notices(&world), 2);
}

#[test]
fn the_highest_threshold_wakes_no_worker_however_often_reports_are_switched_on() {
    let world = World::new(Fake::new());
    world.fake().tunables().report_threshold.set(u64::MAX);
    (0..4).for_each(|_| world.heap.reclaim().set_reporting(true));
    assert_eq!(world.fake().notices.load(Relaxed), 0);
}

#[test]
fn a_pageblock_that_the_kernel_filled_up_is_found_and_reported_again() {
    for sparse in [true, false] {
        let mut world = full_pageblocks(false, 4);
        let base = world.held.iter().map(|block| block.addr).min().unwrap();
        let every = if sparse { 8 } else { 2 };
        free_where(&mut world, |addr| !((addr - base) / RUN).is_multiple_of(every));
        let free = 4 * PAGEBLOCK - world.held.len() * RUN;
        assert_eq!(pressure(&world, Level::Some), free);
        // Huge pages are switched on, and khugepaged comes by.
        world.fake().huge.store(true, Relaxed);
        released(&world);
        world.fake().collapsed.lock().unwrap().push(Run { addr: base + PAGEBLOCK, len: PAGEBLOCK });
        calm(&world);
        assert_eq!(world.fake().stats().huge_collapsed.load(Relaxed), 1);
        assert_eq!(bytes(&released(&world)), if sparse { free / 4 } else { 0 });
        assert_eq!(world.audit().idle_pages, if sparse { 0 } else { free / 4 / PAGE });
        world.fake().collapsed.lock().unwrap().clear();
        assert_eq!(pressure(&world, Level::Severe), if sparse { 0 } else { free / 4 });
    }
}

#[test]
fn a_full_pageblock_of_slabs_is_looked_at_without_a_lock_of_each() {
    const BLOCKS: usize = 4;
    let mut world = world(false);
    (0..BLOCKS * PAGEBLOCK / 2048).for_each(|_| assert!(world.alloc(2048).is_some()));
    let base = world.held.iter().map(|block| block.addr).min().unwrap() & !(PAGEBLOCK - 1);
    world.fake().huge.store(true, Relaxed);
    let locks = |full: usize| {
        let blocks = (0..full).map(|i| Run { addr: base + i * PAGEBLOCK, len: PAGEBLOCK });
        *world.fake().collapsed.lock().unwrap() = blocks.collect();
        let before = world.fake().looks_at_ranks.load(Relaxed);
        pressure(&world, Level::Some);
        world.fake().looks_at_ranks.load(Relaxed) - before
    };
    locks(0);
    let [none, all] = [locks(0), locks(BLOCKS)];
    assert!(all - none < BLOCKS * 16, "{} looks at the locks held, for pageblocks of 256 slabs or more", all - none);
}

/// Each pageblock is of one node, and a look at it takes the lock of that one's zone alone.
#[test]
fn a_look_for_what_the_kernel_filled_takes_no_more_locks_on_a_machine_of_many_nodes() {
    const BLOCKS: usize = 64;
    let turns = |nodes: usize| {
        let fake = Fake::new();
        fake.node_count.store(nodes, Relaxed);
        fake.may_have_huge.store(true, Relaxed);
        let mut world = World::new(fake);
        for node in 0..nodes {
            run_on_node(node);
            (0..BLOCKS / nodes * PAGEBLOCK / RUN).for_each(|_| assert!(world.alloc(RUN).is_some()));
        }
        *world.fake().turns.lock().unwrap() = Some(Vec::new());
        pressure(&world, Level::Some);
        let turns = world.fake().turns.lock().unwrap().take().unwrap();
        turns.iter().filter(|turn| turn.rank == rank::ZONE && turn.is_taken).count()
    };
    let [one, many] = [turns(1), turns(8)];
    assert!(many - one < BLOCKS * 3, "{one} turns of one node's lock, {many} of eight nodes'");
}

#[test]
fn where_only_whole_pageblocks_are_taken_no_others_are_offered() {
    let mut fake = Fake::new();
    fake.unit = PAGEBLOCK;
    let mut world = World::new(fake);
    (0..6 * PAGEBLOCK / RUN).for_each(|_| assert!(world.alloc(RUN).is_some()));
    (0..2000).for_each(|_| assert!(world.alloc(500).is_some()));
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    free_where(&mut world, |addr| addr - base < 2 * PAGEBLOCK || !((addr - base) / RUN).is_multiple_of(7));
    (0..3).for_each(|_| calm(&world));
    pressure(&world, Level::Severe);
    let runs = released(&world);
    assert!(!runs.is_empty());
    assert!(runs.iter().all(|run| run.addr.is_multiple_of(PAGEBLOCK) && run.len.is_multiple_of(PAGEBLOCK)));
    world.free_all();
    world.heap.purge();
    // All of it goes, in whole pageblocks.
    assert_eq!(world.audit().idle_pages, 0);
}

/// Of slabs go whole pages of the system's, and the balancer sleeps though free pages are left on others.
#[test]
fn slabs_release_whole_pages_of_the_system_below() {
    for unit in [PAGE, 16 << 10] {
        let mut fake = Fake::new();
        fake.unit = unit;
        let mut world = World::new(fake);
        // A slab of these has 32 pages.
        (0..2000).for_each(|_| assert!(world.alloc(3000).is_some()));
        let base = world.held.iter().map(|block| block.addr).min().unwrap();
        free_where(&mut world, |addr| !(addr - base).is_multiple_of(128 << 10));
        world.heap.purge();
        let slabs = events(&world).into_iter().filter(|event| event.kind == Some(Kind::Slabs));
        assert!(slabs.map(|event| event.bytes).sum::<u64>() > 1 << 20, "{unit}");
        let mut turns = 0;
        while world.heap.reclaim().balance_calm() {
            world.fake().pass_ms(300);
            turns += 1;
            assert!(turns < 100, "the balancer never sleeps");
        }
        // An object comes back to a page that went, and its neighbours on the system's page are known to have memory.
        (0..500).for_each(|_| assert!(world.alloc(3000).is_some()));
    }
}

#[test]
fn every_batch_leaves_an_event() {
    let mut world = full_pageblocks(false, 40);
    world.past_buckets(|world| free_where(world, |_| true));
    pressure(&world, Level::Some);
    let events = events(&world);
    assert_eq!(events.iter().map(|e| e.bytes).sum::<u64>(), 40 * PAGEBLOCK as u64);
    assert_eq!(events.iter().map(|e| e.blocks).collect::<Vec<_>>(), [16, 16, 8]);
    let as_asked =
        |e: &Event| (e.place, e.kind, e.cause) == (Some(Place::Normal), Some(Kind::Whole), Some(Cause::Pressure));
    assert!(events.iter().all(|e| as_asked(e) && e.error == 0 && e.zone == 0));
}
