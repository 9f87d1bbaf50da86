//! The hard limit: an allocation beyond it reclaims, then fails, and the program goes on. Every way to get memory is covered.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::caches::user_cache::Spec;
use weir_core::pages::user_zone::MemoryKind;
use weir_core::platform::Diagnostics;

use crate::fake::{Call, Fake};
use crate::held::World;
use crate::zones::{PRIVATE, zone_of};

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
    world.finish();
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
        world.finish();
    }
}

#[test]
fn user_caches_and_batches_of_them() {
    let world = world();
    let spec = Spec { name: b"pictures", size: 3000, ..Spec::default() };
    let id = world.heap.make_cache(&spec).unwrap();
    let mut objects = vec![std::ptr::null_mut(); 10_000];
    let n = world.heap.cache_alloc_batch(id, &mut objects);
    assert!(n * 3000 <= LIMIT && n * 3000 > LIMIT - (1 << 20), "{n}");
    assert!(world.heap.cache_alloc(id).is_null() && failures(&world) >= 1);
    // SAFETY: allocated above, and not used.
    unsafe { world.heap.cache_free_batch(id, &objects[..n]) };
    let object = world.heap.cache_alloc(id);
    assert!(!object.is_null());
    // SAFETY: allocated just now.
    unsafe { world.heap.cache_free(id, object) };
    // SAFETY: nobody uses the cache.
    unsafe { world.heap.destroy_cache(id) }.unwrap();
    world.finish();
}

#[test]
fn zones_of_the_programs_own() {
    for memory in [PRIVATE, MemoryKind { reported: false, ..PRIVATE }] {
        let world = world();
        let (zone, _) = zone_of(&world.heap, 16, memory, NonNull::from(world.fake()));
        let mut runs = Vec::new();
        while let Ok(run) = world.heap.zone_take(&zone, 100, 0) {
            runs.push(world.heap.pages().zone_addr(&zone, run));
            assert!(runs.len() <= 16 * 512 / 100);
        }
        let bytes = runs.len() * 100 * PAGE;
        if memory.reported {
            assert!(bytes <= LIMIT && bytes > LIMIT - (1 << 20), "{bytes}");
        } else {
            assert!(bytes > LIMIT, "locked memory is resident from the start: taking it costs nothing");
            assert!(world.heap.alloc(100).is_null(), "and leaves nothing to the heap");
        }
        runs.into_iter().for_each(|addr| world.heap.pages().zone_give(&zone, addr, 100).unwrap());
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
    world.finish();
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
    world.finish();
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
        world.finish();
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
    world.finish();
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
