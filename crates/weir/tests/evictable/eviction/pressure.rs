//! Effects of pressure on a cache, and of its end.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use weir::{EvictableCache, RemovalCause};

fn filled(entries: u64) -> EvictableCache<u64, [u8; 1000]> {
    let cache = EvictableCache::builder().weigher(|_, _| 1000).build().unwrap();
    (0..entries).for_each(|key| drop(cache.insert(key, [key as u8; 1000]).unwrap()));
    assert_eq!(cache.len() as u64, entries, "it grows while it may");
    cache
}

#[test]
fn an_eviction_frees_what_is_wanted_and_the_target_stays_down_until_relief() {
    let cache = filled(4_000);
    assert_eq!(cache.evict(0), 0);
    let freed = cache.evict(3_000_000);
    assert!((3_000_000..3_020_000).contains(&freed), "{freed}");
    let left = cache.bytes();
    assert_eq!((left, cache.stats().target_bytes), (4_000_000 - freed, 1_000_000.max(left)));
    // Refilled before the next look, it would undo what was freed.
    for key in 10_000..20_000 {
        drop(cache.insert(key, [0; 1000]).unwrap());
        assert!(cache.bytes() <= 1_000_000);
    }
    assert_eq!(cache.stats().evicted_for_pressure * 1000, freed as u64);
    cache.relieved();
    (20_000..23_000).for_each(|key| drop(cache.insert(key, [0; 1000]).unwrap()));
    assert!(cache.bytes() > 3_900_000, "{}", cache.bytes());
}

#[test]
fn pressure_goes_down_to_the_least_and_takes_no_pinned_entry() {
    let cache = EvictableCache::<u64, u64>::builder().weigher(|_, _| 100).min_bytes(1_000).build().unwrap();
    (0..100).for_each(|key| drop(cache.insert(key, key).unwrap()));
    assert_eq!(cache.evict(usize::MAX), 9_000);
    assert_eq!((cache.bytes(), cache.evict(usize::MAX)), (1_000, 0));
    // Below the least it grows even under pressure.
    cache.clear();
    (0..50).for_each(|key| drop(cache.insert(key, key).unwrap()));
    assert_eq!(cache.bytes(), 1_000);
    cache.relieved();

    let cache = filled(100);
    let guards: Vec<_> = (0..100).step_by(2).map(|key| cache.get(&key).unwrap()).collect();
    assert_eq!(cache.stats().pinned, 50);
    assert_eq!((cache.evict(usize::MAX), cache.len()), (50_000, 50));
    assert_eq!(cache.stats().target_bytes, 50_000, "what is left");
    assert!(guards.iter().all(|guard| guard[999] == *guard.key() as u8));
    // All of what is left is pinned: nothing new comes in, and the value comes back.
    let refused = cache.insert(1000, [9; 1000]).unwrap_err();
    assert_eq!((refused.refusal, refused.value[0]), (weir::Refusal::Full, 9));
    drop(guards);
    assert!(cache.insert(1000, [9; 1000]).is_ok());
}

#[test]
fn what_pressure_leaves_is_cut_by_the_bound_of_the_moment() {
    let builder = EvictableCache::<u64, u64>::builder().weigher(|_, _| 100).min_bytes(1_000).max_bytes(300);
    let cache = builder.build().unwrap();
    (0..100).for_each(|key| drop(cache.insert(key, key).unwrap()));
    assert_eq!((cache.evict(usize::MAX), cache.bytes(), cache.stats().target_bytes), (0, 300, 300));
    cache.set_max_bytes(10_000);
    cache.relieved();
    (0..100).for_each(|key| drop(cache.insert(key, key).unwrap()));
    assert_eq!((cache.evict(usize::MAX), cache.bytes()), (9_000, 1_000));
}

#[test]
fn the_hottest_entries_outlive_pressure() {
    let cache = filled(4_000);
    for _ in 0..8 {
        (0..200).for_each(|key| drop(cache.get(&key).unwrap()));
    }
    cache.evict(3_500_000);
    let hot = (0..200).filter(|key| cache.contains(key)).count();
    assert!(hot > 100, "{hot} of 200 hot entries are left in an eighth of the cache; by chance 25");
}

#[test]
fn the_bound_can_be_lowered_and_raised() {
    let cache = filled(1_000);
    cache.set_max_bytes(100_000);
    assert!(cache.bytes() <= 100_000 && cache.len() > 95);
    (5_000..6_000).for_each(|key| drop(cache.insert(key, [0; 1000]).unwrap()));
    assert_eq!(cache.bytes(), 100_000);
    cache.set_max_bytes(500_000);
    (5_000..6_000).for_each(|key| drop(cache.insert(key, [0; 1000]).unwrap()));
    // The last one may have replaced an entry, for which room was made first.
    assert!(cache.bytes() >= 499_000, "room was no pressure: {}", cache.bytes());
}

/// Or each insertion and removal of the only entry would allocate it, and free it again.
#[test]
fn the_least_that_describes_entries_stays_until_memory_is_wanted() {
    let cache = EvictableCache::<u64, u64>::builder().shards(1).build().unwrap();
    let empty = cache.stats().metadata_bytes;
    let one = |key| {
        drop(cache.insert(key, key).unwrap());
        let with = cache.stats().metadata_bytes;
        assert!(cache.remove(&key));
        with
    };
    let with = one(1);
    assert!(with > empty && with < empty + 2048, "{with} bytes, and {empty} without");
    assert_eq!(cache.stats().metadata_bytes, with);
    assert_eq!(one(2), with);
    // What many entries had goes, but for that.
    (0..1000).for_each(|key| drop(cache.insert(key, key).unwrap()));
    assert!(cache.stats().metadata_bytes > 4 * with);
    (0..1000).for_each(|key| assert!(cache.remove(&key)));
    assert!(cache.stats().metadata_bytes <= with);
    for gives in [
        |cache: &EvictableCache<u64, u64>| _ = cache.evict(usize::MAX),
        EvictableCache::relieved,
        EvictableCache::clear,
    ] {
        one(3);
        gives(&cache);
        assert_eq!(cache.stats().metadata_bytes, empty);
    }
}

#[test]
fn what_describes_entries_is_a_few_per_cent_and_goes_with_them() {
    let cache = EvictableCache::<u64, [u8; 4096]>::builder().build().unwrap();
    let empty = cache.stats().metadata_bytes;
    for key in 0..20_000 {
        drop(cache.insert(key, [1; 4096]).unwrap());
    }
    let stats = cache.stats();
    let full = stats.metadata_bytes;
    assert!(full * 100 < stats.bytes * 5, "{full} bytes for {} of entries", stats.bytes);
    cache.evict(stats.bytes / 4 * 3);
    assert!((0..20_000).filter(|key| cache.get(key).is_some_and(|value| value[0] == 1)).count() >= 4_900);
    // Copied to a smaller place only once there is memory for the copy, or where hardly anything is left to copy.
    assert_eq!(cache.stats().metadata_bytes, full);
    cache.relieved();
    let few = cache.stats().metadata_bytes;
    assert!(few < full / 3 * 2, "{few} of {full} bytes are left");
    cache.evict(cache.bytes() / 20 * 19);
    assert!((100..300).contains(&cache.len()) && cache.stats().metadata_bytes < few / 4, "{:?}", cache.stats());
    cache.evict(usize::MAX);
    assert_eq!((cache.len(), cache.stats().metadata_bytes), (0, empty));
}

#[test]
fn the_listener_is_told_why() {
    let (send, told) = std::sync::mpsc::channel();
    let send = std::sync::Mutex::new(send);
    let cache = EvictableCache::<u32, u32>::builder()
        .max_bytes(2)
        .weigher(|_, value| *value as usize)
        .on_evict(move |key, _, cause| send.lock().unwrap().send((*key, cause)).unwrap())
        .build()
        .unwrap();
    drop(cache.insert(1, 1).unwrap());
    drop(cache.insert(1, 1).unwrap());
    assert!(cache.insert(2, 3).is_err());
    drop(cache.insert(3, 2).unwrap());
    cache.remove(&3);
    drop(cache.insert(4, 1).unwrap());
    cache.evict(1);
    cache.relieved();
    drop(cache.insert(5, 1).unwrap());
    drop(cache);
    let told: Vec<_> = told.try_iter().collect();
    let wanted = [
        (1, RemovalCause::Replaced),
        (2, RemovalCause::Rejected),
        (1, RemovalCause::Room),
        (3, RemovalCause::Removed),
        (4, RemovalCause::Pressure),
        (5, RemovalCause::Removed),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn an_eviction_that_finds_all_pinned_does_not_lift_the_target_above_the_bound() {
    let cache = filled(100);
    let guards: Vec<_> = (0..100).map(|key| cache.get(&key).unwrap()).collect();
    cache.set_max_bytes(10_000);
    assert_eq!((cache.evict(1), cache.bytes()), (0, 100_000));
    assert_eq!(cache.stats().target_bytes, 10_000);
    drop(guards);
}

#[test]
fn threads_that_insert_at_once_do_not_each_evict_what_is_too_much() {
    // The first thread is held in the listener of its first eviction; by then it has looked at what is too much.
    let (is_first, meet) = (AtomicBool::new(true), Arc::new([Barrier::new(2), Barrier::new(2)]));
    let at = meet.clone();
    let listener = move |_: &u64, _: &[u8; 1000], cause| {
        if cause == RemovalCause::Room && is_first.swap(false, SeqCst) {
            for barrier in &*at {
                barrier.wait();
            }
        }
    };
    static CACHE: OnceLock<EvictableCache<u64, [u8; 1000]>> = OnceLock::new();
    let cache = CACHE
        .get_or_init(|| EvictableCache::builder().shards(1).weigher(|_, _| 1000).on_evict(listener).build().unwrap());
    (0..2_000).for_each(|key| drop(cache.insert(key, [0; 1000]).unwrap()));
    let guards: Vec<_> = (0..2_000).map(|key| cache.get(&key).unwrap()).collect();
    cache.set_max_bytes(1_000_000);
    drop(guards);
    let first = std::thread::spawn(|| drop(CACHE.get().unwrap().insert(5_000, [0; 1000]).unwrap()));
    meet[0].wait();
    drop(cache.insert(5_001, [0; 1000]).unwrap());
    meet[1].wait();
    first.join().unwrap();
    assert!(cache.bytes() > 900_000, "{} of 1000000 bytes are left", cache.bytes());
}

#[test]
fn a_bound_that_is_set_again_evicts_what_was_pinned_at_first() {
    let cache = EvictableCache::<u64, u64>::builder().weigher(|_, _| 100).build().unwrap();
    let guards: Vec<_> = (0..50).map(|key| cache.insert(key, key).unwrap()).collect();
    cache.set_max_bytes(1_000);
    drop(guards);
    assert_eq!(cache.bytes(), 5_000, "all was pinned");
    cache.set_max_bytes(1_000);
    assert_eq!(cache.bytes(), 1_000);
}
