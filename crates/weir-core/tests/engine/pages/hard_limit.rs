//! The hard limit: an allocation beyond it reclaims, then fails, and the program goes on. Every way to get memory is covered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use weir_core::base::units::{Order, PAGE, PAGEBLOCK, Pages};
use weir_core::caches::user_cache::{LimitError, Spec};
use weir_core::pages::user_zone::MemoryKind;
use weir_core::platform::{Clock, Diagnostics, rank};
use weir_core::pools::page_pool::{PagePool, PoolSpec};
use weir_core::reclaim::budget::Room;

use crate::fake::{Call, Fake};
use crate::held::World;
use crate::pages::zones::{PRIVATE, zone_of};

const LIMIT: usize = 16 << 20;

fn world() -> World {
    let mut world = World::new(Fake::new());
    world.fake().tunables().hard_limit.set(LIMIT as u64);
    world.may_fail = true;
    world
}

fn failures(world: &World) -> u64 {
    world.fake().stats().hard_limit_failures.load(Relaxed)
}

/// Bytes held, at usable sizes.
fn held(world: &World) -> usize {
    world.usable().map(|(_, len)| len).sum()
}

/// Allocates by `alloc` until it fails; what is held then is the limit but for `slack` bytes.
fn fills(slack: usize, mut alloc: impl FnMut(&mut World) -> bool) {
    let mut world = world();
    while alloc(&mut world) {}
    assert!(held(&world) <= LIMIT, "{} bytes", held(&world));
    assert!(held(&world) >= LIMIT - slack, "{} of {LIMIT}: more could be had", held(&world));
    assert!(failures(&world) >= 1);
    // The program lives: what it frees it can have again.
    world.check_contents();
    world.audit();
    let half = world.held.len() / 2;
    (0..=half).for_each(|_| world.free(0, false));
    assert!(alloc(&mut world));
    world.fake().tunables().hard_limit.set(0);
    assert!(world.alloc(2 * LIMIT).is_some(), "without the limit all is as before");
}

#[test]
fn slabs() {
    fills(1 << 20, |world| world.alloc(1000).is_some());
    fills(1 << 20, |world| world.alloc(20_000).is_some());
}

#[test]
fn runs() {
    fills(1 << 20, |world| world.alloc(300 << 10).is_some());
    fills(3 << 20, |world| world.alloc_aligned(PAGEBLOCK, 1 << 20).is_some());
}

#[test]
fn pages_below_4_gib() {
    fills(1 << 20, |world| world.alloc_low(300 << 10).is_some());
}

#[test]
fn blocks_mapped_on_their_own() {
    fills(6 << 20, |world| world.alloc(5 << 20).is_some());
}

#[test]
fn zeroed_memory() {
    fills(6 << 20, |world| world.alloc_zeroed(5 << 20).is_some());
    fills(1 << 20, |world| world.alloc_zeroed(5000).is_some());
}

#[test]
fn growth_of_blocks_in_place_and_by_copy() {
    for size in [1000, 100_000, 5 << 20] {
        let mut world = world();
        world.alloc(size).unwrap();
        for _ in 0..100 {
            let before = world.held[0].len;
            world.realloc(0, before + before / 2);
            assert!(held(&world) <= LIMIT);
            if world.held[0].len == before {
                break;
            }
        }
        assert!(failures(&world) >= 1 && held(&world) >= LIMIT / 3, "{} of {size}", held(&world));
        world.realloc(0, size / 2);
    }
}

#[test]
fn user_caches_and_batches_of_them() {
    let world = world();
    let spec = Spec { name: b"pictures", size: 3000, ..Spec::default() };
    let id = world.heap.user_caches().make(&spec).unwrap();
    let mut objects = vec![std::ptr::null_mut(); 10_000];
    let n = world.heap.user_caches().alloc_batch(id, &mut objects);
    assert!(n * 3000 <= LIMIT && n * 3000 > LIMIT - (1 << 20), "{n}");
    assert!(world.heap.user_caches().alloc(id).is_null() && failures(&world) >= 1);
    // SAFETY: allocated above, and not used.
    unsafe { world.heap.user_caches().free_batch(id, &objects[..n]) };
    let object = world.heap.user_caches().alloc(id);
    assert!(!object.is_null());
    // SAFETY: allocated just now.
    unsafe { world.heap.user_caches().free(id, object) };
    // SAFETY: the cache is not used any more.
    unsafe { world.heap.user_caches().destroy(id) }.unwrap();
}

#[test]
fn a_reserve_that_is_refused_leaves_the_memory_to_others() {
    const SIZE: usize = 128;
    // More than the limit is; and no more, but more than what is in use leaves of it.
    for objects in [2 * LIMIT / SIZE, (LIMIT - (2 << 20)) / SIZE] {
        let mut world = world();
        world.alloc(4 << 20).unwrap();
        let caches = world.heap.user_caches();
        let id = caches.make(&Spec { name: b"reserve", size: SIZE, ..Spec::default() }).unwrap();
        assert_eq!(caches.set_reserve(id, 100), Ok(()));
        let before = caches.stats(id).slab_bytes;
        assert_eq!(caches.set_reserve(id, objects), Err(LimitError::NoMemory));
        let stats = caches.stats(id);
        assert_eq!((stats.reserve, stats.slab_bytes), (100, before));
        assert!(stats.free_slab >= 100);
        assert!(world.alloc(3 << 20).is_some() && world.alloc(LIMIT / 4).is_some());
        // SAFETY: the cache is not used any more.
        unsafe { world.heap.user_caches().destroy(id) }.unwrap();
    }
}

/// At the limit a batch is served in part. Then a callback frees something, and the object of the next slab cannot be made.
#[test]
fn what_a_batch_has_is_freed_where_a_panic_ends_it() {
    static IS_BAD: AtomicBool = AtomicBool::new(false);
    unsafe extern "C-unwind" fn init(_: *mut u8, _: usize, _: *mut u8) -> bool {
        assert!(!IS_BAD.load(Relaxed), "on purpose");
        true
    }
    let mut world = world();
    let spec = Spec { name: b"made", size: 3000, init: Some(init), ..Spec::default() };
    let id = world.heap.user_caches().make(&spec).unwrap();
    world.alloc(1 << 20).unwrap();
    let block = world.give_up(0).addr;
    let heap = NonNull::from(&*world.heap).addr().get();
    *world.fake().hard_limit_callback.lock().unwrap() = Some(Box::new(move |_| {
        // SAFETY: the heap outlives the callback; the block was given up, and is freed once.
        unsafe { (*(heap as *const weir_core::heap::Heap<Fake>)).free(block as *mut u8) };
        !IS_BAD.swap(true, Relaxed)
    }));
    let mut objects = vec![std::ptr::null_mut(); 10_000];
    let batch = || world.heap.user_caches().alloc_batch(id, &mut objects);
    assert!(catch_unwind(AssertUnwindSafe(batch)).is_err());
    *world.fake().hard_limit_callback.lock().unwrap() = None;
    assert!(!objects[1000].is_null(), "a part of it was there");
    // SAFETY: the cache is not used any more.
    unsafe { world.heap.user_caches().destroy(id) }.expect("no object is out");
}

/// What is taken for a batch is a slab, and for a pool's run one of a longer length.
#[test]
fn a_batch_and_a_pool_are_refused_by_the_limit_as_soon_as_what_they_take_exceeds_it() {
    let world = world();
    let heap = &*world.heap;
    let pool = PagePool::new(&PoolSpec::default());
    let pages = (1..).find(|&pages| PagePool::run_pages(pages) > pages).unwrap();
    let id = heap.user_caches().make(&Spec { name: b"batch", size: 3000, ..Spec::default() }).unwrap();
    let limit = charged(heap) + world.fake().stats().metadata_bytes.load(Relaxed) as usize;
    world.fake().tunables().hard_limit.set((limit + PAGE) as u64);
    assert_eq!((heap.user_caches().alloc_batch(id, &mut [std::ptr::null_mut()]), failures(&world)), (0, 1));
    world.fake().tunables().hard_limit.set((limit + pages * PAGE) as u64);
    // SAFETY: it stays where it is until it is taken off the list, and is shared alone.
    unsafe { heap.page_pools().add(NonNull::from(&pool)) };
    assert!(heap.page_pools().get(&pool, pages).is_null() && failures(&world) == 2);
    heap.page_pools().remove(&pool).unwrap();
    // SAFETY: the cache is not used any more.
    unsafe { heap.user_caches().destroy(id) }.unwrap();
}

#[test]
fn zones_of_the_programs_own() {
    for memory in [PRIVATE, MemoryKind { reported: false, ..PRIVATE }] {
        let world = world();
        let (zone, _) = zone_of(&world.heap, 16, memory, NonNull::from(world.fake()));
        let mut runs = Vec::new();
        while let Ok(run) = world.heap.zones().take(&zone, Pages(100), Order::PAGE) {
            runs.push(world.heap.pages().zone_addr(&zone, run));
            assert!(runs.len() <= 16 * 512 / 100);
        }
        let bytes = runs.len() * 100 * PAGE;
        if memory.reported {
            assert!(bytes <= LIMIT && bytes > LIMIT - (1 << 20), "{bytes}");
        } else {
            // Added without asking for room.
            assert!(bytes > LIMIT, "locked memory is resident from the start: taking it costs nothing");
            assert!(world.heap.alloc(100).is_null(), "and leaves nothing to the heap");
        }
        runs.into_iter().for_each(|addr| world.heap.pages().zone_give(&zone, addr, Pages(100)).unwrap());
        world.heap.pages().remove_zone(&zone);
    }
}

#[test]
fn what_is_free_is_reclaimed_before_an_allocation_fails() {
    let mut world = world();
    // Everything once: in depots and buckets, free in zones, retained.
    for size in [64, 1000, 30_000, 300_000, 5 << 20] {
        while world.alloc(size).is_some() {}
        world.free_all();
    }
    let before = failures(&world);
    assert!(world.alloc(LIMIT - (1 << 20)).is_some(), "nothing is in use");
    assert_eq!(failures(&world), before);
    assert!(world.fake().stats().direct_reclaims.load(Relaxed) > 0);
    assert!(world.fake().stats().direct_stall_ns.load(Relaxed) < u64::MAX / 2);
}

#[test]
fn a_callback_may_free_something_before_an_allocation_fails_and_allocate_itself() {
    let mut world = world();
    while world.alloc(300_000).is_some() {}
    let told = world.fake().at_hard_limit.lock().unwrap().len();
    assert!(told > 0, "it was told of the first failure");
    let i = world.held.len() - 1;
    let block = world.give_up(i).addr;
    let heap = NonNull::from(&*world.heap).addr().get();
    *world.fake().hard_limit_callback.lock().unwrap() = Some(Box::new(move |bytes| {
        assert_eq!(bytes.div_ceil(PAGE), 300_000usize.div_ceil(PAGE));
        // SAFETY: the heap outlives the callback, which runs inside one of its calls.
        let heap = unsafe { &*(heap as *const weir_core::heap::Heap<Fake>) };
        // It is not called for its own allocations: that would never end.
        assert!(heap.alloc(600_000).is_null());
        // SAFETY: the block is given up, once: the next call finds it free.
        unsafe { heap.free(block as *mut u8) };
        true
    }));
    assert!(world.alloc(300_000).is_some(), "what the callback freed serves the allocation");
    *world.fake().hard_limit_callback.lock().unwrap() = None;
    assert!(world.alloc(300_000).is_none());
}

/// The first thread is in the callback until the second waits for it.
#[test]
fn an_allocation_has_what_the_callback_of_another_thread_frees() {
    let mut world = world();
    while world.alloc(300_000).is_some() {}
    let blocks = [0, 0].map(|_| world.give_up(world.held.len() - 1).addr);
    let (heap, fake) = (&*world.heap, world.fake());
    let (waits, is_waited_for) = channel();
    let (frees, has_freed) = channel();
    let (is_waited_for, has_freed) = (Mutex::new(is_waited_for), Mutex::new(has_freed));
    fake.while_callbacks_are_waited_for(move || {
        waits.send(()).unwrap();
        has_freed.lock().unwrap().recv().unwrap();
    });
    let (calls, calls_begun) = channel();
    let at = NonNull::from(heap).addr().get();
    *fake.hard_limit_callback.lock().unwrap() = Some(Box::new(move |_| {
        // SAFETY: the heap outlives the callback, which runs inside one of its calls.
        let heap = unsafe { &*(at as *const weir_core::heap::Heap<Fake>) };
        calls.send(()).unwrap();
        is_waited_for.lock().unwrap().recv().unwrap();
        // SAFETY: the blocks are given up, once: there is one call.
        blocks.iter().for_each(|&block| unsafe { heap.free(block as *mut u8) });
        true
    }));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let block = heap.alloc(300_000).addr();
            frees.send(()).unwrap();
            block
        });
        calls_begun.recv().unwrap();
        let blocks = [heap.alloc(300_000).addr(), first.join().unwrap()];
        assert!(!blocks.contains(&0), "{blocks:x?}");
        // SAFETY: allocated just now.
        blocks.iter().for_each(|&block| unsafe { heap.free(block as *mut u8) });
    });
    fake.hard_limit_callback.lock().unwrap().take();
}

#[test]
fn a_callback_that_waits_for_an_allocation_of_another_thread_goes_on_when_that_has_failed() {
    let mut world = world();
    while world.alloc(300_000).is_some() {}
    let at = NonNull::from(&*world.heap).addr().get();
    *world.fake().hard_limit_callback.lock().unwrap() = Some(Box::new(move |_| {
        // SAFETY: the heap outlives the callback, which runs inside one of its calls.
        let heap = unsafe { &*(at as *const weir_core::heap::Heap<Fake>) };
        std::thread::scope(|scope| scope.spawn(|| heap.alloc(300_000).is_null()).join().unwrap())
    }));
    let before = world.fake().now();
    assert!(world.alloc(300_000).is_none());
    let waited = world.fake().now().since(before).0;
    assert!(waited >= world.fake().tunables().callback_ms.ns().0, "{waited}");
    world.fake().hard_limit_callback.lock().unwrap().take();
}

#[test]
fn limits_below_what_is_in_use_and_odd_ones_do_no_harm() {
    for limit in [1, PAGE as u64, 1 << 20, u64::MAX] {
        let mut world = World::new(Fake::new());
        let block = world.alloc(5 << 20).unwrap();
        world.fake().tunables().hard_limit.set(limit);
        world.may_fail = true;
        let more = world.alloc(300_000);
        assert_eq!(more.is_some(), limit == u64::MAX, "{limit}");
        world.realloc(block, 1 << 20);
        world.check_contents();
        world.fake().tunables().hard_limit.set(0);
    }
}

#[test]
fn memory_that_is_resident_serves_at_the_limit_and_the_heap_does_not_grow_for_nothing() {
    let mut world = world();
    while world.alloc(300_000).is_some() {}
    let addresses = world.fake().stats().address_bytes.load(Relaxed);
    world.fake().fail(Call::MapAt, 0);
    for _ in 0..100 {
        assert!(world.alloc(300_000).is_none());
    }
    assert_eq!(world.fake().calls(Call::MapAt), 0, "address space is no help");
    assert_eq!(world.fake().stats().address_bytes.load(Relaxed), addresses);
}

#[test]
fn threads_that_allocate_at_once_do_not_share_the_same_room() {
    let heap = weir_core::heap::Heap::new(Fake::new());
    heap.prepare();
    heap.platform().tunables().hard_limit.set(LIMIT as u64);
    let got: usize = std::thread::scope(|scope| {
        let fill = |cpu: usize| {
            crate::fake::run_on(cpu);
            std::iter::from_fn(|| Some(heap.alloc(5 << 20)).filter(|block| !block.is_null())).count()
        };
        let threads: Vec<_> = (0..8).map(|cpu| scope.spawn(move || fill(cpu))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(got, LIMIT / (5 << 20));
}

/// Bytes that count against the limit, metadata aside.
fn charged(heap: &weir_core::heap::Heap<Fake>) -> usize {
    let tunables = heap.platform().tunables();
    let limit = tunables.hard_limit.get();
    tunables.hard_limit.set(1 << 40);
    let charged =
        heap.reclaim().budget_figures().resident - heap.platform().stats().metadata_bytes.load(Relaxed) as usize;
    tunables.hard_limit.set(limit);
    charged
}

/// Else nodes would wait for one another there.
#[test]
fn what_counts_is_known_without_the_locks_of_the_zones() {
    let turns = |limit: u64| {
        let fake = Fake::new();
        fake.node_count.store(16, Relaxed);
        let world = World::new(fake).leak();
        world.fake().tunables().hard_limit.set(limit);
        assert!(!world.heap.alloc(1 << 20).is_null());
        *world.fake().turns.lock().unwrap() = Some(Vec::new());
        assert!(!world.heap.alloc(1 << 20).is_null());
        let turns = world.fake().turns.lock().unwrap().take().unwrap();
        [rank::ZONE, rank::USER_ZONES].map(|rank| turns.iter().filter(|turn| turn.rank == rank).count())
    };
    assert_eq!(turns(1 << 40), turns(0));
}

/// Each of two allocations wants a pageblock of its own, as a huge page comes whole; there is room for one. The second comes
/// when the first has looked how much room there is, and has taken nothing yet.
#[test]
fn allocations_that_find_less_than_they_could_need_do_not_share_it() {
    // Two do not fit into one pageblock.
    const PAGES: usize = 300;
    let heap = Box::new(weir_core::heap::Heap::new(Fake::new()));
    heap.platform().node_count.store(2, Relaxed);
    heap.platform().huge.store(true, Relaxed);
    heap.prepare();
    // The heap does not grow while room is held: it has addresses enough.
    let long = heap.alloc(PAGEBLOCK * 2 - PAGE);
    // SAFETY: allocated just now.
    unsafe { heap.free(long) };
    heap.purge();
    assert!(!heap.alloc(PAGES * PAGE).is_null());
    let metadata = heap.platform().stats().metadata_bytes.load(Relaxed) as usize;
    let limit = charged(&heap) + metadata + PAGEBLOCK + PAGEBLOCK / 2;
    heap.platform().tunables().hard_limit.set(limit as u64);
    let at = NonNull::from(&*heap).addr().get();
    heap.platform().while_a_home_is_sought(move || {
        // SAFETY: the heap outlives the hook, which runs inside one of its calls.
        let heap = unsafe { &*(at as *const weir_core::heap::Heap<Fake>) };
        assert!(heap.alloc(PAGES * PAGE).is_null(), "the room is the first one's");
    });
    assert!(!heap.alloc(PAGES * PAGE).is_null());
    let sum = charged(&heap) + heap.platform().stats().metadata_bytes.load(Relaxed) as usize;
    assert!(sum <= limit, "{} over", sum - limit);
}

/// A run of two pageblocks' length that begins inside one has pages in three. Of two huge pages and the rest of the first
/// pageblock, only the huge pages find room.
#[test]
fn a_run_that_begins_inside_a_pageblock_may_need_one_huge_page_more() {
    let heap = Box::new(weir_core::heap::Heap::new(Fake::new()));
    heap.platform().huge.store(true, Relaxed);
    heap.prepare();
    let first = heap.alloc(200 * PAGE);
    // At the limit the heap does not grow: it has addresses enough.
    let long = heap.alloc(PAGEBLOCK * 2 - PAGE);
    // SAFETY: allocated just now.
    unsafe { heap.free(long) };
    heap.purge();
    let metadata = || heap.platform().stats().metadata_bytes.load(Relaxed) as usize;
    let limit = charged(&heap) + metadata() + 2 * PAGEBLOCK + 100 * PAGE;
    heap.platform().tunables().hard_limit.set(limit as u64);
    assert!(heap.alloc(1000 * PAGE).is_null(), "the last huge page has no room");
    assert!(charged(&heap) + metadata() <= limit);
    heap.platform().tunables().hard_limit.set((limit + PAGEBLOCK) as u64);
    assert_eq!(heap.alloc(1000 * PAGE).addr(), first.addr() + 200 * PAGE, "where the one before it ends");
}

/// A smaller block is wanted of each kind, and there is no memory for one: by the limit, or as the system refuses it.
#[test]
fn a_block_that_is_to_shrink_stays_where_no_smaller_one_can_be_had() {
    for by_limit in [true, false] {
        let mut world = world();
        world.fake().tunables().hard_limit.set(if by_limit { LIMIT as u64 } else { 0 });
        world.alloc(40_000).unwrap();
        world.alloc(300 << 10).unwrap();
        world.alloc(5 << 20).unwrap();
        world.alloc_low(300 << 10).unwrap();
        let kept = world.held.clone();
        if !by_limit {
            [Call::Map, Call::MapAt].into_iter().for_each(|call| world.fake().fail(call, u64::MAX));
        }
        for size in [300 << 10, 40_000, 5_000, 1_000, 100] {
            while world.alloc(size).is_some() {}
        }
        while world.alloc_low(1).is_some() {}
        for size in [60_000, 100, 1] {
            for old in &kept {
                let i = world.held.iter().position(|held| held.addr == old.addr).unwrap();
                let usable = world.usable().find(|&(addr, _)| addr == old.addr);
                world.realloc(i, size.min(old.len));
                let is_there = world.held.iter().any(|held| held.addr == old.addr && held.len == size.min(old.len));
                assert!(is_there, "{by_limit}: {size} of {old:x?}");
                assert_eq!(world.usable().find(|&(addr, _)| addr == old.addr), usable);
            }
            world.audit();
        }
        world.check_contents();
        world.fake().fail_nothing();
    }
}

#[test]
fn at_the_limit_a_retained_block_serves_without_reclaim() {
    let mut world = world();
    let block = world.alloc(10 << 20).unwrap();
    while world.alloc(300_000).is_some() {}
    world.free(block, false);
    let stats = world.fake().stats();
    let (reclaims, failures) = (stats.direct_reclaims.load(Relaxed), stats.hard_limit_failures.load(Relaxed));
    world.fake().fail(Call::Map, 0);
    let mapped = world.fake().calls(Call::Map);
    // All of it, then a part of it: what is cut off stays retained, and counts on.
    for size in [10 << 20, 6 << 20] {
        let block = world.alloc(size).unwrap();
        world.free(block, false);
    }
    let stats = world.fake().stats();
    assert_eq!(stats.direct_reclaims.load(Relaxed), reclaims, "no new memory was needed");
    assert_eq!((stats.hard_limit_failures.load(Relaxed), world.fake().calls(Call::Map)), (failures, mapped));
}

#[test]
fn what_blocks_mapped_on_their_own_count_is_what_they_hold() {
    let mut world = world();
    let before = charged(&world.heap);
    let block = world.alloc(5 << 20).unwrap();
    assert_eq!(charged(&world.heap), before + (5 << 20));
    world.realloc(block, 9 << 20);
    let len = world.usable().map(|(_, len)| len).sum::<usize>();
    assert_eq!(charged(&world.heap), before + len);
    world.realloc(0, 6 << 20);
    world.free(0, false);
    assert!(charged(&world.heap) > before, "retained: it was touched");
    world.heap.purge();
    assert_eq!(charged(&world.heap), before);
}

/// A block that grows by a small step takes no more of the limit than it asks for.
#[test]
fn a_block_that_grows_has_no_slack_below_the_limit() {
    let mut world = world();
    let before = charged(&world.heap);
    let block = world.alloc(8 << 20).unwrap();
    world.realloc(block, (8 << 20) + (64 << 10));
    assert_eq!(charged(&world.heap) - before, (8 << 20) + (64 << 10));
    assert!(world.alloc(7 << 20).is_some());
}

#[test]
fn a_zone_that_is_resident_from_the_start_counts_as_it_is_made() {
    let mut world = world();
    let heap = NonNull::from(&*world.heap);
    // SAFETY: the heap is boxed, and outlives the rooms.
    let heap = unsafe { heap.as_ref() };
    assert!(heap.zones().room(LIMIT + PAGE).is_err(), "it would not fit into all of the limit");
    let held = heap.zones().room(LIMIT / 2).unwrap();
    assert!(heap.zones().room(LIMIT / 2 + PAGE).is_err(), "held is held");
    assert!(world.alloc(LIMIT / 2 + PAGE).is_none());
    drop(held);
    // What is idle makes room for it.
    while world.alloc(300_000).is_some() {}
    assert!(heap.zones().room(LIMIT / 2).is_err());
    world.free_all();
    assert!(heap.zones().room(LIMIT / 2).is_ok());
}

#[test]
fn the_budget_hears_of_a_zone_that_is_resident_from_the_start() {
    let heap = weir_core::heap::Heap::new(Fake::new());
    heap.reclaim().read_room(Room::shared(1 << 30, 512 << 20));
    let free = || heap.reclaim().budget_figures().free;
    let before = free();
    let (zone, _) = zone_of(&heap, 16, PRIVATE, NonNull::from(heap.platform()));
    assert_eq!(free(), before);
    heap.pages().remove_zone(&zone);
    // Before its memory is there.
    let room = heap.zones().room(16 * PAGEBLOCK).unwrap();
    assert_eq!(free(), before - 16 * PAGEBLOCK);
    heap.reclaim().read_room(Room::shared(1 << 30, (512 << 20) + 16 * PAGEBLOCK as u64));
    let locked = MemoryKind { reported: false, ..PRIVATE };
    let (zone, _) = zone_of(&heap, 16, locked, NonNull::from(heap.platform()));
    drop(room);
    assert_eq!(free(), before - 16 * PAGEBLOCK, "once");
    heap.pages().remove_zone(&zone);
}

#[test]
fn what_fits_just_below_the_limit_is_served_and_a_page_more_is_not() {
    const BLOCK: usize = 5 << 20;
    for (short, is_served) in [(0, true), (1, false)] {
        let mut world = world();
        // The first one maps what describes blocks.
        world.alloc(BLOCK).unwrap();
        world.free_all();
        world.heap.purge();
        let metadata = world.fake().stats().metadata_bytes.load(Relaxed) as usize;
        let limit = charged(&world.heap) + metadata + BLOCK - short;
        world.fake().tunables().hard_limit.set(limit as u64);
        assert_eq!(world.alloc(BLOCK).is_some(), is_served, "{short} bytes too few");
        assert_eq!(failures(&world), u64::from(!is_served));
    }
}

/// Under `weir run` other processes may write to the page of counters.
#[test]
fn a_figure_that_another_process_wrote_refuses_nothing() {
    let mut world = world();
    world.alloc(1000).unwrap();
    world.fake().stats().metadata_bytes.store(1 << 40, Relaxed);
    assert!(world.alloc(5 << 20).is_some());
    world.heap.figures().publish();
    assert!((1..1 << 30).contains(&world.fake().stats().metadata_bytes.load(Relaxed)), "what is measured is shown");
    assert_eq!(failures(&world), 0);
}

#[test]
fn what_exceeds_the_limit_by_itself_takes_nothing_from_anybody() {
    let mut world = world();
    // Of no class, so that it is not kept in a bucket.
    world.alloc_low(1 << 20).unwrap();
    world.free_all();
    let idle = world.audit().idle_pages;
    assert!(idle > 0);
    assert!(world.alloc(LIMIT + PAGE).is_none());
    assert_eq!((world.audit().idle_pages, failures(&world)), (idle, 1));
    assert!(world.fake().at_hard_limit.lock().unwrap().is_empty());
    // A block of just the limit can be had once nothing else is held.
    assert!(world.alloc(LIMIT).is_some());
    assert_eq!((world.audit().idle_pages, failures(&world)), (0, 1));
}
