//! A load always returns: what the cache does not keep is its guard's alone.

use crate::counted::{Count, Counted};
#[cfg(not(plain))]
use crate::eviction::reclaim::in_child;
use crate::sleeping::Sleeper;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;
#[cfg(not(plain))]
use weir::{ByteCache, heap, settings, zone::Zone};
use weir::{EvictableCache, Favour, Refusal, RemovalCause};

#[test]
fn what_is_larger_than_the_cache_is_held_by_its_guard() {
    let (live, told) = (Count::default(), Arc::new(AtomicUsize::new(0)));
    let heard = told.clone();
    let cache = EvictableCache::<u64, Counted>::builder()
        .max_bytes(100)
        .weigher(|_, value| value.number as usize)
        .on_evict(move |_, _, cause| {
            assert_eq!(cause, RemovalCause::Rejected);
            heard.fetch_add(1, SeqCst);
        })
        .build()
        .unwrap();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                let found = cache.get_or_insert_with(1, || live.make(1000));
                assert_eq!((found.check(), *found.key(), found.weight()), (1000, 1, 1000));
                assert_eq!(found.clone().check(), 1000);
            });
        }
    });
    assert_eq!((live.get(), cache.len(), cache.bytes()), (0, 0, 0));
    assert_eq!((cache.stats().rejected, told.load(SeqCst)), (2, 2));
    assert_eq!(cache.try_get_or_insert_with(1, || Err(5)).map(drop), Err(5), "errors are the loader's own");
}

#[test]
fn a_guard_that_is_all_that_holds_an_entry_keeps_the_cache_from_being_freed() {
    let live = Count::default();
    let cache = EvictableCache::<u64, Counted>::builder().max_bytes(1).weigher(|_, _| 2).build().unwrap();
    let found = cache.get_or_insert_with(1, || live.make(1));
    std::mem::forget(found.clone());
    drop(found);
    drop(cache);
    assert_eq!(live.get(), 1, "a guard that is forgotten costs its entry, and no other memory is touched");
}

#[test]
fn pressure_leaves_one_entry_of_each_thread_that_inserts() {
    let cache = EvictableCache::<u64, [u8; 1000]>::builder().weigher(|_, _| 1000).build().unwrap();
    (0..100).for_each(|key| drop(cache.insert(key, [0; 1000]).unwrap()));
    cache.evict(usize::MAX);
    assert_eq!((cache.bytes(), cache.stats().target_bytes), (0, 0));
    // Not relieved: no memory is free. Each thread's own entry comes in, and goes for its next one.
    for key in 0..10 {
        drop(cache.insert(key, [1; 1000]).unwrap());
        assert_eq!((cache.bytes(), cache.stats().target_bytes), (1000, 1000));
        assert_eq!(cache.evict(usize::MAX), 0, "what the thread is at work on stays");
    }
    let own = cache.get_or_insert_with(50, || [2; 1000]);
    assert!(cache.contains(&50));
    // It is pinned, so that a second one of this thread finds no room: the load returns all the same.
    assert_eq!(cache.insert(51, [3; 1000]).unwrap_err().refusal, Refusal::Full);
    let second = cache.get_or_insert_with(51, || [3; 1000]);
    assert_eq!((own[999], second[999], cache.contains(&51)), (2, 3, false));
    cache.relieved();
    drop((own, second));
    assert_eq!(cache.evict(usize::MAX), 1000, "after relief no thread has a part for itself");
}

#[test]
fn threads_that_insert_no_more_keep_nothing_from_pressure() {
    let cache = EvictableCache::<u64, u64>::builder().weigher(|_, _| 1 << 20).build().unwrap();
    cache.evict(usize::MAX);
    let insert = |key| drop(cache.insert(key, key).unwrap());
    // No memory is free: each is the one entry of its thread.
    thread::scope(|scope| (0..16).for_each(|key| drop(scope.spawn(move || insert(key)))));
    assert!(cache.bytes() > 0);
    for key in 16..40 {
        insert(key);
        cache.evict(usize::MAX);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cache.bytes(), 1 << 20, "the one that goes on keeps its own, and no other does");
    thread::sleep(Duration::from_millis(1100));
    cache.evict(usize::MAX);
    assert_eq!(cache.bytes(), 0);
}

#[cfg(not(plain))]
#[test]
fn a_load_returns_although_the_caches_place_has_no_memory() {
    in_child(|| {
        static LIVE: std::sync::LazyLock<Count> = std::sync::LazyLock::new(Count::default);
        let zone: &'static Zone = Box::leak(Box::new(Zone::anonymous(4 << 20).unwrap()));
        let cache =
            EvictableCache::<u64, (Counted, [u8; 4096])>::builder().weigher(|_, _| 1).zone(zone).build().unwrap();
        let held: Vec<_> =
            (0..2_000).map(|key| cache.get_or_insert_with(key, || (LIVE.make(key), [7; 4096]))).collect();
        assert!(cache.len() < 2_000, "the zone has no room for all");
        assert!(held.iter().all(|entry| entry.0.check() == *entry.key() && entry.1[4095] == 7));
        drop(held);
        assert_eq!(LIVE.get(), cache.len() as isize);
        // Larger than a run of any zone.
        let large = EvictableCache::<u64, [u8; 8 << 20]>::builder().zone(zone).build().unwrap();
        thread::Builder::new()
            .stack_size(64 << 20)
            .spawn(move || assert_eq!(large.get_or_insert_with(1, || [5; 8 << 20])[8_000_000], 5))
            .unwrap()
            .join()
            .unwrap();
        let bytes = ByteCache::builder().zone(zone).max_bytes(64).build().unwrap();
        let fill = |value: &mut [u8]| {
            value.fill(3);
            Ok::<(), ()>(())
        };
        let found = bytes.get_or_fill(b"key", 8 << 20, fill).unwrap().unwrap();
        assert_eq!((found[(8 << 20) - 1], found.key(), bytes.len()), (3, &b"key"[..], 0));
        drop(found);
        let absurd = bytes.get_or_fill(b"key", usize::MAX / 4, |_| Ok::<(), ()>(())).unwrap().map(drop);
        assert_eq!(absurd, Err(Refusal::OutOfMemory));
    });
}

#[cfg(not(plain))]
#[test]
fn a_load_returns_under_a_hard_limit() {
    in_child(|| {
        let cache = EvictableCache::<u64, [u8; 1000]>::builder().shards(1).build().unwrap();
        let limit = heap::usage().resident_bytes() + (1 << 20);
        settings::set("hard_limit", &limit.to_string()).unwrap();
        // The values are in this program's own memory, which has no such limit.
        let held: Vec<_> = (0..2_000).map(|key| cache.get_or_insert_with(key, || [key as u8; 1000])).collect();
        assert!(held.iter().all(|entry| entry[999] == *entry.key() as u8));
        assert!(cache.len() < 2_000);
        drop(held);
        settings::set("hard_limit", "0").unwrap();
        assert!(cache.insert(1, [1; 1000]).is_ok());
    });
}

/// A full cache of 100 entries that weigh 1 each and were used.
fn full_of_light_ones(live: &Count, favour: Favour, told: Arc<AtomicUsize>) -> EvictableCache<u64, Counted> {
    let builder = EvictableCache::<u64, Counted>::builder().max_bytes(100).shards(1).favour(favour);
    let cache = builder
        .weigher(|key, _| if *key < 1000 { 1 } else { 50 })
        .on_evict(move |_, _, cause| _ = (cause == RemovalCause::Rejected).then(|| told.fetch_add(1, SeqCst)))
        .build()
        .unwrap();
    for key in (0..100).cycle().take(300) {
        drop(cache.get_or_insert_with(key, || live.make(key)));
    }
    assert_eq!(cache.bytes(), 100);
    cache
}

#[test]
fn what_is_heavy_and_seldom_asked_for_is_its_guards_alone() {
    let (live, told) = (Count::default(), Arc::new(AtomicUsize::new(0)));
    let cache = full_of_light_ones(&live, Favour::Entries, told.clone());
    let found = cache.get_or_insert_with(1000, || live.make(7));
    let put_in = cache.insert(1001, live.make(8)).unwrap();
    assert_eq!((found.check(), found.weight(), put_in.check()), (7, 50, 8));
    assert_eq!((cache.len(), cache.bytes(), live.get()), (100, 100, 102));
    drop((found, put_in));
    assert_eq!((live.get(), told.load(SeqCst), cache.stats().rejected), (100, 2, 2));
    // Asked for again and again it comes in.
    for _ in 0..20 {
        drop(cache.get_or_insert_with(1000, || live.make(7)));
    }
    assert!(cache.contains(&1000));
    // What is there is replaced, whatever it weighs.
    drop(cache.insert(1000, live.make(9)).unwrap());
    assert_eq!(cache.get(&1000).unwrap().check(), 9);

    let cache = full_of_light_ones(&live, Favour::Bytes, told);
    drop(cache.get_or_insert_with(1000, || live.make(7)));
    assert!(cache.contains(&1000));
}

#[test]
fn what_others_wait_for_is_kept_whatever_it_weighs() {
    let live = Count::default();
    let cache = full_of_light_ones(&live, Favour::Entries, Arc::default());
    let loads = AtomicUsize::new(0);
    thread::scope(|scope| {
        let slow = || {
            loads.fetch_add(1, SeqCst);
            let other = || assert_eq!(cache.get_or_insert_with(1000, || live.make(8)).check(), 7);
            Sleeper::spawn(scope, other).wait();
            live.make(7)
        };
        assert_eq!(cache.get_or_insert_with(1000, slow).check(), 7);
    });
    assert_eq!(loads.load(SeqCst), 1);
    assert!(cache.contains(&1000));
}
