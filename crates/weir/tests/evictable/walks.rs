//! All entries in turn: iteration, and `retain`.

use crate::counted::{Count, Counted};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use weir::{ByteCache, EvictableCache, RemovalCause};

fn filled(live: &Count, entries: u64) -> EvictableCache<u64, Counted> {
    let cache = EvictableCache::builder().weigher(|_, _| 100).shards(4).build().unwrap();
    (0..entries).for_each(|key| drop(cache.insert(key, live.make(key))));
    cache
}

#[test]
fn each_entry_comes_once_and_stays_with_its_guard() {
    let live = Count::default();
    let cache = filled(&live, 1_000);
    let hits = cache.stats().hits;
    let mut keys: Vec<u64> = cache.iter().map(|entry| entry.check()).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..1_000));
    assert_eq!((cache.stats().hits, cache.stats().pinned), (hits, 0), "it counts as no use");
    let mut few = cache.iter();
    let guards: Vec<_> = few.by_ref().take(40).collect();
    cache.clear();
    assert!(guards.iter().all(|guard| guard.check() == *guard.key()));
    assert_eq!((&cache).into_iter().count(), 0);
    drop((few, guards));
    assert_eq!(live.get(), 0);
    let bytes = ByteCache::builder().build().unwrap();
    (0..100u8).for_each(|key| drop(bytes.insert(&[key], &[key; 9]).unwrap()));
    bytes.retain(|key, value| key[0] < 50 && value[8] == key[0]);
    assert_eq!(bytes.iter().map(|entry| usize::from(entry[0])).sum::<usize>(), 49 * 25);
}

/// Bytes that describe the entries of a cache.
fn metadata(cache: &EvictableCache<u64, u64>) -> usize {
    cache.stats().metadata_bytes
}

#[test]
fn what_described_the_entries_that_a_walk_takes_out_goes_with_them() {
    let cache = EvictableCache::<u64, u64>::builder().shards(1).build().unwrap();
    drop(cache.insert(0, 0).unwrap());
    let with_one = metadata(&cache);
    let fill = || (0..10_000).for_each(|key| drop(cache.insert(key, key).unwrap()));
    fill();
    cache.retain(|_, _| false);
    assert!(metadata(&cache) <= with_one, "{} bytes, and {with_one} with one", metadata(&cache));
    // Removed while another thread walks.
    fill();
    let mut walk = cache.iter();
    drop(walk.next());
    (0..10_000).for_each(|key| assert!(cache.remove(&key)));
    assert!(metadata(&cache) > 4 * with_one, "entries keep their numbers as long as it goes on");
    drop(walk);
    assert!(metadata(&cache) <= with_one, "{} bytes, and {with_one} with one", metadata(&cache));
}

#[test]
fn what_is_there_all_the_time_comes_once_whatever_else_comes_and_goes() {
    let live = Count::default();
    let cache = filled(&live, 20_000);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The storage of shards grows, and is due to become smaller again and again.
            while !is_over.load(SeqCst) {
                (100..20_000).for_each(|key| _ = cache.remove(&key));
                cache.evict(1);
                cache.relieved();
                (100..20_000).for_each(|key| drop(cache.insert(key, live.make(key))));
            }
        });
        for round in 0..60 {
            let mut seen = [0u8; 100];
            for entry in cache.iter() {
                if let Some(seen) = seen.get_mut(entry.check() as usize) {
                    *seen += 1;
                }
                // One in a hundred is pinned while the other thread works on.
                if round % 10 == 0 && *entry.key() % 100 == 0 {
                    thread::yield_now();
                }
            }
            // An eviction takes the coldest: the walk itself is no use of an entry.
            let lost = (0..100).filter(|key| !cache.contains(key)).count();
            let once = seen.iter().filter(|&&seen| seen == 1).count();
            assert!(seen.iter().all(|&seen| seen <= 1) && once + lost >= 100, "{seen:?}");
        }
        is_over.store(true, SeqCst);
    });
    let entries = cache.len();
    assert_eq!((cache.iter().count(), live.get()), (entries, entries as isize));
    cache.clear();
    assert_eq!(live.get(), 0);
}

#[test]
fn retain_takes_out_what_it_is_told_to_and_may_use_the_cache() {
    let (live, told) = (Count::default(), Arc::new(Mutex::new(0)));
    let heard = told.clone();
    let cache = EvictableCache::<u64, Counted>::builder().weigher(|_, _| 100).on_evict(move |key, value, cause| {
        assert_eq!((value.check(), cause), (*key, RemovalCause::Removed));
        *heard.lock().unwrap() += 1;
    });
    let cache = cache.build().unwrap();
    (0..500).for_each(|key| drop(cache.insert(key, live.make(key))));
    let pinned = cache.get(&3).unwrap();
    cache.retain(|key, value| {
        assert_eq!(value.check(), *key);
        // Gone already when it is to be taken out.
        if *key % 10 == 9 {
            cache.remove(key);
        }
        *key % 10 == 0
    });
    assert_eq!((cache.len(), live.get(), *told.lock().unwrap()), (50, 51, 450));
    assert_eq!(pinned.check(), 3);
    cache.retain(|_, _| true);
    assert_eq!((cache.len(), cache.stats().removed), (50, 450));
}

/// The clock is asked before the lock is taken, each time.
#[test]
fn a_walk_past_entries_of_which_the_time_is_over_gives_the_lock_back() {
    const ENTRIES: u64 = 10_000;
    let (time, calls) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (now, asked) = (time.clone(), calls.clone());
    let clock = move || {
        asked.fetch_add(1, SeqCst);
        Duration::from_secs(now.load(SeqCst))
    };
    let cache = EvictableCache::<u64, u64>::builder().shards(1).time_to_live(Duration::from_secs(10)).clock(clock);
    let cache = cache.build().unwrap();
    (0..ENTRIES).for_each(|key| drop(cache.insert(key, key).unwrap()));
    time.store(10, SeqCst);
    calls.store(0, SeqCst);
    assert_eq!(cache.iter().count(), 0);
    assert!(calls.load(SeqCst) > ENTRIES / 100, "{}", calls.load(SeqCst));
    assert_eq!(cache.len() as u64, ENTRIES);
}
