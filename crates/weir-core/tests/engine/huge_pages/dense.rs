//! A heap that grows dense asks for huge pages, and is as any other heap otherwise.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::platform::Diagnostics;
use weir_core::reclaim::budget::Room;

use crate::fake::{Fake, run_on_node};
use crate::held::World;
use crate::reclaim::order::calm;

const MIB: usize = 1 << 20;
/// Bytes of a heap that learns of its growth.
const LEARNS_FROM: usize = 32 * MIB;

/// An empty heap where huge pages come to those who ask, and what was touched is resident.
fn asking() -> World {
    asking_on(1)
}

fn asking_on(nodes: usize) -> World {
    let fake = Fake::new();
    fake.node_count.store(nodes, Relaxed);
    fake.huge_on_advice.store(true, Relaxed);
    fake.really.store(true, Relaxed);
    World::new(fake)
}

/// Has blocks of `size` bytes until there are `bytes` of them.
fn hold(world: &mut World, size: usize, bytes: usize) {
    while world.held.iter().map(|block| block.len).sum::<usize>() < bytes {
        world.alloc(size).unwrap();
    }
}

fn asked(world: &World) -> Vec<Run> {
    std::mem::take(&mut *world.fake().advised.lock().unwrap())
}

fn bytes(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.len).sum()
}

/// The pageblocks that ask and have a block in them.
fn in_use(world: &World, asked: &[Run]) -> BTreeSet<usize> {
    let of = |block: usize| asked.iter().any(|run| (run.addr..run.addr + run.len).contains(&block));
    world.held.iter().map(|block| block.addr & !(PAGEBLOCK - 1)).filter(|&block| of(block)).collect()
}

fn cooled(world: &World) -> Vec<usize> {
    world.fake().take_cooled().iter().map(|run| run.addr).collect()
}

#[test]
fn what_a_heap_of_filled_objects_grows_by_asks() {
    let mut world = asking();
    hold(&mut world, 8000, LEARNS_FROM - 4 * MIB);
    assert_eq!((bytes(&asked(&world)), world.fake().may_have_huge.load(Relaxed)), (0, false));
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    let asked = asked(&world);
    assert!(bytes(&asked) >= LEARNS_FROM && world.fake().may_have_huge.load(Relaxed), "{asked:x?}");
}

#[test]
fn so_it_is_where_several_nodes_grow_by_turns() {
    let mut world = asking_on(2);
    // Rows come to be longer than what need not be filled yet.
    for slice in 1..=8 * LEARNS_FROM / MIB {
        run_on_node(slice % 2);
        hold(&mut world, 30_000, slice * MIB);
        if slice == 4 * LEARNS_FROM / MIB {
            asked(&world);
        }
    }
    let asked = bytes(&asked(&world));
    assert!(asked >= 3 * LEARNS_FROM, "{asked} of the last {}", 4 * LEARNS_FROM);
}

#[test]
fn a_node_that_fills_nothing_does_not_ask_beside_one_that_fills_all() {
    let mut world = asking_on(2);
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    assert!(!asked(&world).is_empty());
    run_on_node(1);
    (0..100).for_each(|_| assert!(!world.heap.alloc(MIB).is_null(), "nothing writes to it"));
    assert!(asked(&world).is_empty());
    world.leak();
}

/// Where what is mapped counts against all processes, what was released of it is unmapped at rest.
#[test]
fn what_was_unmapped_asks_again() {
    let mut world = asking();
    world.fake().are_mappings_counted.store(true, Relaxed);
    hold(&mut world, 30_000, 6 * LEARNS_FROM);
    while world.held.len() * 30_000 > 2 * LEARNS_FROM {
        world.free(world.held.len() - 1, false);
    }
    (0..10).for_each(|_| calm(&world));
    let mapped = world.fake().stats().address_bytes.load(Relaxed) as usize;
    assert!(mapped < 3 * LEARNS_FROM, "{mapped} bytes are mapped");
    asked(&world);
    hold(&mut world, 30_000, 6 * LEARNS_FROM);
    let bytes = bytes(&asked(&world));
    assert!(bytes >= 3 * LEARNS_FROM, "{bytes} of {}", 4 * LEARNS_FROM);
}

#[test]
fn it_counts_single_pages_and_gives_them_back_as_any_heap_and_what_that_split_is_cooled_once() {
    let mut world = asking();
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    let asked = in_use(&world, &asked(&world));
    assert!(asked.len() > 10 && world.fake().take_cooled().is_empty());
    for block in (0..world.held.len()).rev().filter(|block| block % 20 != 0) {
        let block = world.give_up(block);
        // SAFETY: it was the test's, which gives it back.
        unsafe { world.heap.free(block.addr as *mut u8) };
    }
    (0..10).for_each(|_| calm(&world));
    let usage = world.heap.figures().usage();
    assert!(usage.idle < 2 * MIB, "{usage:?}");
    let first = cooled(&world);
    assert_eq!(first.iter().copied().collect::<BTreeSet<_>>().len(), first.len(), "none twice");
    assert!(asked.iter().all(|block| first.contains(block)), "{} of {}", first.len(), asked.len());
    (0..10).for_each(|_| calm(&world));
}

/// The kernel puts a huge page behind each pageblock that asks: also behind pages that were never handed out.
fn come_whole(blocks: &BTreeSet<usize>) {
    for page in blocks.iter().flat_map(|block| (*block..block + PAGEBLOCK).step_by(PAGE)) {
        let at = page as *mut u8;
        // SAFETY: a page of the heap's, mapped; what the test wrote to it stays.
        unsafe { at.write_volatile(at.read_volatile()) };
    }
}

#[test]
fn pages_of_its_huge_pages_that_were_never_handed_out_go_back_with_the_others() {
    // A slab of 15 pages leaves a page of its slot.
    for (kept, size) in [(usize::MAX, 5000), (20, 5000), (1000, 2500)] {
        let mut world = asking();
        hold(&mut world, size, 3 * LEARNS_FROM);
        let asked = in_use(&world, &asked(&world));
        assert!(asked.len() > 10);
        come_whole(&asked);
        for block in (0..world.held.len()).rev().filter(|block| (block + 1) % kept != 0) {
            let block = world.give_up(block);
            // SAFETY: it was the test's, which gives it back.
            unsafe { world.heap.free(block.addr as *mut u8) };
        }
        world.heap.purge();
        let usage = world.heap.figures().usage();
        assert!(usage.idle < PAGEBLOCK / 8, "{kept}: {usage:?}");
    }
}

/// A huge page that came whole is behind all of it. Behind a slab of 15 pages a page is left over, which nobody ever has.
#[test]
fn a_free_pageblock_that_asked_goes_whole_with_what_was_never_handed_out_of_it() {
    let mut world = asking();
    hold(&mut world, 3000, 3 * LEARNS_FROM);
    let asked = in_use(&world, &asked(&world));
    assert!(asked.len() > 10);
    world.free_all();
    world.fake().take_released();
    world.heap.purge();
    let released: Vec<Run> = world.fake().take_released().concat();
    let is_whole =
        |&block: &usize| released.iter().any(|run| run.addr <= block && block + PAGEBLOCK <= run.addr + run.len);
    assert!(asked.iter().all(is_whole), "{} of {}", asked.iter().filter(|block| is_whole(block)).count(), asked.len());
    assert!(cooled(&world).is_empty(), "nothing is left of the huge pages");
    assert_eq!(world.audit().idle_pages, 0);
}

#[test]
fn a_heap_of_which_the_program_writes_little_does_not_ask() {
    let world = asking();
    for _ in 0..200 {
        // Nothing writes to it.
        assert!(!world.heap.alloc(MIB).is_null());
    }
    assert!(asked(&world).is_empty());
    world.leak();
}

#[test]
fn large_runs_ask_all_but_probes_until_a_probe_was_not_filled() {
    let mut world = asking();
    hold(&mut world, MIB, 8 * LEARNS_FROM);
    let filled = bytes(&asked(&world));
    let grown = world.fake().stats().address_bytes.load(Relaxed) as usize - LEARNS_FROM;
    assert!((grown * 3 / 4..grown * 19 / 20).contains(&filled), "{filled} of {grown}");
    for _ in 0..20 {
        // Two rows at least, of an eighth of the heap each. Nothing writes to it.
        (0..10).for_each(|_| assert!(!world.heap.alloc(MIB).is_null()));
        let sparse = bytes(&asked(&world));
        assert!(sparse <= 40 * MIB, "{sparse}");
    }
    assert!(bytes(&asked(&world)) == 0);
    world.leak();
}

#[test]
fn where_huge_pages_take_long_the_rest_asks_no_more_for_a_time() {
    let mut world = asking();
    world.fake().populate_ms.store(5, Relaxed);
    hold(&mut world, 8000, LEARNS_FROM + 20 * MIB);
    let (first, small) = (asked(&world), std::mem::take(&mut *world.fake().advised_small.lock().unwrap()));
    assert_eq!((first.len(), small.len()), (1, 1), "{first:x?} {small:x?}");
    let touched = 3 * PAGEBLOCK;
    let rest = Run { addr: first[0].addr + touched, len: first[0].len - touched };
    assert_eq!(small, [rest], "all but those that were touched");
    // 5 ms are paid for by 5 s.
    hold(&mut world, 8000, 2 * LEARNS_FROM);
    assert!(asked(&world).is_empty());
    world.fake().populate_ms.store(0, Relaxed);
    world.fake().pass_ms(5000);
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    assert!(!asked(&world).is_empty());
}

#[test]
fn what_was_released_whole_is_timed_again() {
    let mut world = asking();
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    assert!(!asked(&world).is_empty());
    world.free_all();
    world.heap.purge();
    world.fake().populate_ms.store(2, Relaxed);
    assert!(world.fake().advised_small.lock().unwrap().is_empty());
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    assert!(!world.fake().advised_small.lock().unwrap().is_empty());
}

#[test]
fn near_a_limit_what_was_released_whole_asks_no_more() {
    let mut world = asking();
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    let asked = asked(&world);
    world.free_all();
    world.heap.purge();
    let small = |world: &World| std::mem::take(&mut *world.fake().advised_small.lock().unwrap());
    let (capacity, free) = (1 << 28, 8 << 20);
    world.heap.reclaim().read_room(Room::shared(capacity, capacity - free));
    hold(&mut world, 8000, 2 * LEARNS_FROM);
    let (few, used) = (small(&world), in_use(&world, &asked));
    assert!(!used.is_empty() && few.iter().all(|run| run.len == PAGEBLOCK), "{few:x?}");
    assert_eq!(few.iter().map(|run| run.addr).collect::<BTreeSet<_>>(), used, "each before it is touched");
    // With room again, the others get what they asked for; those that were touched have none to be cooled.
    world.heap.reclaim().read_room(Room::shared(capacity, 0));
    hold(&mut world, 8000, 2 * LEARNS_FROM + 16 * MIB);
    assert!(small(&world).is_empty() && in_use(&world, &asked).len() > used.len());
}

#[test]
fn near_a_limit_a_run_over_two_pageblocks_leaves_the_huge_page_of_the_first() {
    let mut world = asking();
    hold(&mut world, 8000, 3 * LEARNS_FROM);
    let asked = asked(&world);
    world.free_all();
    world.heap.purge();
    world.fake().take_cooled();
    let small = |world: &World| std::mem::take(&mut *world.fake().advised_small.lock().unwrap());
    while in_use(&world, &asked).is_empty() {
        world.alloc(MIB / 2).unwrap();
    }
    let (capacity, first) = (1 << 28, in_use(&world, &asked));
    assert!(small(&world).is_empty());
    world.heap.reclaim().read_room(Room::shared(capacity, capacity - (8 << 20)));
    world.alloc(3 * MIB).unwrap();
    let run = world.held.last().unwrap();
    let begin = run.addr & !(PAGEBLOCK - 1);
    assert!(first.contains(&begin), "{:x} after {first:x?}", run.addr);
    let len = (run.addr + run.len).next_multiple_of(PAGEBLOCK) - begin - PAGEBLOCK;
    assert_eq!(small(&world), [Run { addr: begin + PAGEBLOCK, len }]);
}

#[test]
fn a_system_without_the_call_is_asked_once() {
    let mut world = asking();
    world.fake().populate_ms.store(u64::MAX, Relaxed);
    hold(&mut world, 8000, 2 * LEARNS_FROM);
    assert_eq!(asked(&world).len(), 1);
    world.fake().pass_ms(365 * 24 * 3600 * 1000);
    hold(&mut world, 8000, 4 * LEARNS_FROM);
    assert!(asked(&world).is_empty());
}

#[test]
fn no_heap_asks_that_is_told_not_to_or_that_is_short_or_limited() {
    let never: [fn(&World); 4] = [
        |world| world.fake().tunables().huge_blocks.set(0),
        |world| world.fake().tunables().hard_limit.set(1 << 30),
        |world| world.fake().stats().pressure_level.store(1, Relaxed),
        |world| world.fake().huge_on_advice.store(false, Relaxed),
    ];
    for never in never {
        let mut world = asking();
        never(&world);
        hold(&mut world, 8000, 3 * LEARNS_FROM);
        assert!(asked(&world).is_empty());
    }
}
