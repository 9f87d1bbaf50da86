//! The heap grows around what others mapped behind it.

use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::units::{Order, PageNo, Pages, Span};
use weir_core::pages::window::Window;
use weir_core::pages::zone::{FreeAreas, Purpose};
use weir_core::platform::{Diagnostics, Reach};

use crate::fake::{Call, Fake, run_on, run_on_node};
use crate::held::World;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

#[test]
fn somebody_elses_mapping_is_left_alone_however_long_it_is() {
    let mut fake = Fake::new();
    fake.window = 64 * GIB;
    let mut world = World::new(fake);
    for len in [2 * MIB, 300 * MIB, 5 * GIB] {
        let first = world.alloc(MIB).expect("there is room");
        let foreign = world.fake().put_behind(world.held[first].addr, len);
        for _ in 0..200 {
            let block = world.alloc(MIB).expect("there is room behind it");
            let addr = world.held[block].addr;
            assert!(addr + MIB <= foreign.addr || addr >= foreign.addr + foreign.len);
        }
        let behind = world.held.iter().filter(|block| block.addr > foreign.addr).count();
        assert!(behind > 0, "the heap did not grow past {foreign:x?}");
    }
}

#[test]
fn what_lies_behind_a_long_mapping_is_found_as_long_as_there_is_any() {
    let mut fake = Fake::new();
    fake.window = 2 * GIB;
    let mut world = World::new(fake);
    let first = world.alloc(MIB).unwrap();
    let foreign = world.fake().put_behind(world.held[first].addr, 1100 * MIB);
    world.may_fail = true;
    while world.alloc(MIB).is_some() {}
    let behind = world.held.iter().filter(|block| block.addr > foreign.addr).count();
    // 940 MiB are left; at most a step of a sixty-fourth of the window is lost.
    assert!(behind >= 880, "{behind} MiB found behind it");
}

/// Where mmap's area and the window overlap, a block of its own may come to lie where the heap grows next.
#[test]
fn a_block_of_its_own_that_the_heap_grew_past_is_known() {
    const LEN: usize = 8 * MIB;
    for (lockless, new_len) in [(true, 0), (false, 0), (true, 12 * MIB), (true, 6 * MIB), (true, 100), (false, 2 * MIB)]
    {
        let mut fake = Fake::new();
        fake.lockless = lockless;
        let mut world = World::new(fake);
        let first = world.alloc(MIB).unwrap();
        // The table of such blocks is there from the first on.
        world.alloc(5 * MIB).unwrap();
        world.fake().map_next_behind(world.held[first].addr);
        let block = world.alloc(LEN).unwrap();
        let addr = world.held[block].addr;
        for _ in 0..50 {
            world.alloc(MIB);
        }
        let behind = world.held.iter().filter(|held| (addr + LEN..addr + 64 * MIB).contains(&held.addr)).count();
        assert!(behind > 20, "the heap did not grow past it");
        // SAFETY: the test holds it.
        assert_eq!(unsafe { world.heap.usable_size(addr as *mut u8) }, LEN);
        world.audit();
        match new_len {
            0 => world.free(block, false),
            len => world.realloc(block, len),
        }
        world.audit();
        world.heap.purge();
        // SAFETY: it is not: a wrong free, of what is nobody's now.
        unsafe { world.heap.free(addr as *mut u8) };
        assert_eq!(world.fake().take_misuses(), [(InvalidFree::ForeignPointer, addr)]);
    }
}

#[test]
fn somebody_elses_mapping_behind_the_descriptors_is_stepped_over() {
    for len in [4096, 300 << 10, 3 * MIB] {
        let mut fake = Fake::new();
        fake.window = 4 * GIB;
        let mut world = World::new(fake);
        let first = world.alloc(MIB).unwrap();
        // The window's arrays: a guard, the class map, a guard, the descriptors, each a page's number of bytes long.
        let windows = world.fake().windows();
        let (pages, guard) = (windows[0].len / 4096, 2 * MIB);
        world.fake().put_behind(windows[1].addr + guard + pages + guard, len);
        let held: Vec<_> = (0..200).map(|_| world.alloc(MIB).expect("there is room")).collect();
        (0..1000).for_each(|_| assert!(world.alloc(100).is_some()));
        // What is described by nobody is a hole, no larger than it has to be: a page describes 452 KiB.
        let (low, high) = (world.held[first].addr, held.iter().map(|&i| world.held[i].addr).max().unwrap());
        assert!(high - low < 300 * MIB + len / 4096 * 2 * (452 << 10), "{} MiB for 200", (high - low) / MIB);
        world.audit();
        // Memory that is refused behind it changes nothing.
        world.may_fail = true;
        world.fake().fail(Call::MapAt, 0b1010_1010);
        let got = (0..100).filter(|_| world.alloc(MIB).is_some()).count();
        assert!(got > 0);
    }
}

#[test]
fn somebody_elses_mapping_behind_the_class_map_ends_the_heap_and_nothing_else() {
    let mut fake = Fake::new();
    fake.window = 4 * GIB;
    let mut world = World::new(fake);
    world.alloc(MIB).unwrap();
    let arrays = world.fake().windows()[1].addr + 2 * MIB;
    world.fake().put_behind(arrays, 4096);
    world.may_fail = true;
    let held = (0..200).filter(|_| world.alloc(MIB).is_some()).count();
    // The first page of the class map is for 16 MiB.
    assert!((7..=16).contains(&(held + 1)), "{held}");
    world.alloc(5 * MIB).expect("blocks of their own need no window");
}

#[test]
fn refused_memory_is_no_mapping_in_the_way() {
    let mut world = World::new(Fake::new());
    world.may_fail = true;
    world.fake().fail(Call::MapAt, u64::MAX);
    assert_eq!(world.alloc(MIB), None);
    let calls = world.fake().stats().address_bytes.load(Relaxed);
    world.fake().fail(Call::MapAt, 0);
    let (first, second) = (world.alloc(MIB).unwrap(), world.alloc(MIB).unwrap());
    // No hole was left, and nothing was grown meanwhile.
    assert_eq!(calls, 0);
    assert!(world.held[first].addr.abs_diff(world.held[second].addr) < 8 * MIB);
}

#[test]
fn threads_that_run_short_together_grow_the_heap_once() {
    const THREADS: usize = 48;
    let world = World::new(Fake::new());
    world.fake().is_slow.store(true, Relaxed);
    let (heap, start) = (&*world.heap, Barrier::new(THREADS));
    std::thread::scope(|scope| {
        let one = || {
            start.wait();
            let block = heap.alloc(40_000);
            assert!(!block.is_null());
            // SAFETY: this thread's, not used any more.
            unsafe { heap.free(block) };
        };
        (0..THREADS).for_each(|_| drop(scope.spawn(one)));
    });
    // One growth is 8 MiB, and 48 blocks are 2.
    let bytes = world.fake().stats().address_bytes.load(Relaxed) as usize;
    assert!(bytes <= 8 * MIB, "{} MiB for 2", bytes / MIB);
}

#[test]
fn a_node_grows_by_a_part_of_what_it_has_and_not_of_what_all_have() {
    let mut fake = Fake::new();
    fake.window = 4 * GIB;
    fake.node_count.store(8, Relaxed);
    let world = World::new(fake);
    (0..512).for_each(|_| assert!(!world.heap.alloc(MIB).is_null()));
    for node in 1..8 {
        run_on_node(node);
        assert!(!world.heap.alloc(MIB).is_null());
    }
    let bytes = world.fake().stats().address_bytes.load(Relaxed) as usize;
    assert!(bytes <= 512 * MIB * 9 / 8 + 7 * 8 * MIB, "{} MiB for 519", bytes / MIB);
    world.leak();
}

/// Parts of a NUMA node take what is resident and free in another before they grow; NUMA nodes do not.
#[test]
fn a_part_of_a_numa_node_takes_what_its_siblings_have_idle() {
    for (numa_nodes, mapped) in [(1, 64..88), (2, 120..160)] {
        let fake = Fake::new();
        fake.node_count.store(2, Relaxed);
        fake.numa_nodes.store(numa_nodes, Relaxed);
        let mut world = World::new(fake);
        (0..64).for_each(|_| assert!(world.alloc(MIB).is_some()));
        world.free_all();
        // What the first CPU's buckets keep stays there.
        run_on(1);
        run_on_node(1);
        (0..64).for_each(|_| assert!(world.alloc(MIB).is_some()));
        let bytes = world.fake().stats().address_bytes.load(Relaxed) as usize / MIB;
        assert!(mapped.contains(&bytes), "{numa_nodes}: {bytes} MiB for 64");
        world.audit();
    }
}

/// A slab belongs to the node of its pages. One taken of a sibling would serve one batch of objects here.
#[test]
fn a_part_of_a_numa_node_takes_no_slabs_of_its_siblings() {
    let fake = Fake::new();
    fake.node_count.store(2, Relaxed);
    fake.numa_nodes.store(1, Relaxed);
    let mut world = World::new(fake);
    (0..64).for_each(|_| assert!(world.alloc(MIB).is_some()));
    world.free_all();
    run_on(1);
    run_on_node(1);
    let used = |world: &World| world.fake().stats().page_bytes.load(Relaxed) as usize;
    let before = used(&world);
    (0..20_000).for_each(|_| assert!(world.alloc(64).is_some()));
    assert!(used(&world) - before < 2 * MIB, "{} KiB for 1,250", (used(&world) - before) >> 10);
    world.audit();
}

/// A thread has grown the window and not yet added what came of it to the zone, as another extends the last run before it.
#[test]
fn a_run_does_not_grow_into_pages_that_are_not_counted_yet() {
    let (fake, window, mut zone) = (Fake::new(), Window::new(Reach::Any), FreeAreas::new(0));
    let mut growing = window.growing(&fake);
    let blocks = growing.grow(1, 0).unwrap();
    zone.add(&window, blocks);
    while zone.take(&window, Pages::BLOCK, Order::PAGE, Purpose::Run, false, Pages::MAX).is_ok() {}
    let more = Span::new(window.top(), Pages(8));
    let blocks = growing.grow(1, 0).unwrap();
    assert_eq!(blocks.start.first(), more.first);
    assert!(zone.extend(&window, more, false, Pages::MAX).is_err());
    zone.add(&window, blocks);
    assert!(zone.extend(&window, more, false, Pages::MAX).is_ok());
    assert_eq!(zone.pages, window.top() - PageNo(0));
}

/// After `mlockall(MCL_FUTURE)` what is mapped ahead is memory.
#[test]
fn where_all_that_is_mapped_gets_memory_little_is_mapped_ahead() {
    for (populates, ahead, slack) in [(false, 20..64, 7..9), (true, 0..11, 1..2)] {
        let world = World::new(Fake::new());
        let fake = world.fake();
        let ahead_now = || {
            let stats = fake.stats();
            (stats.address_bytes.load(Relaxed) - stats.page_bytes.load(Relaxed)) as usize / MIB
        };
        // The heap is large by the time that the program locks its memory.
        (0..256).for_each(|_| assert!(!world.heap.alloc(MIB).is_null()));
        while ahead_now() > 1 {
            assert!(!world.heap.alloc(MIB).is_null());
        }
        fake.populates.store(populates, Relaxed);
        let most = (0..64).map(|_| (world.heap.alloc(MIB), ahead_now()).1).max().unwrap();
        assert!(ahead.contains(&most), "{populates}: {most} MiB are mapped ahead");
        let block = world.heap.alloc(64 * MIB);
        // SAFETY: the block is the test's.
        let block = unsafe { world.heap.realloc(block, 64 * MIB + 4096) };
        // SAFETY: as above.
        let len = unsafe { world.heap.usable_size(block) };
        assert!(slack.contains(&((len - 64 * MIB) / MIB)), "{populates}: {len} bytes");
        world.leak();
    }
}
