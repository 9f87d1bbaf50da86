//! The keys most worth keeping, for a warm start.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use weir::{ByteCache, EvictableCache};

/// How often a key of this number is used after its insertion.
fn uses(key: u64) -> usize {
    match key % 10 {
        0 => 11,
        1 => 4,
        _ => 0,
    }
}

#[test]
fn what_is_used_most_comes_first() {
    for shards in [1, 4] {
        let cache = EvictableCache::<u64, u64>::builder().shards(shards).build().unwrap();
        (0..200).for_each(|key| drop(cache.insert(key, key).unwrap()));
        for key in 0..200 {
            (0..uses(key)).for_each(|_| assert!(cache.get(&key).is_some()));
        }
        let hits = cache.stats().hits;
        let numbers =
            |from: usize, to: usize| cache.hot_keys(to)[from..].iter().map(|key| key % 10).collect::<Vec<_>>();
        // Twenty of each kind.
        assert_eq!((numbers(0, 1), numbers(0, 20), numbers(20, 40)), (vec![0], vec![0; 20], vec![1; 20]));
        let hot: BTreeSet<u64> = cache.hot_keys(30).into_iter().collect();
        assert_eq!(hot.len(), 30, "each comes once");
        // Fewer, none, and more than there are.
        assert_eq!(cache.hot_keys(usize::MAX).into_iter().collect::<BTreeSet<_>>(), (0..200).collect());
        assert!(cache.hot_keys(0).is_empty());
        // It was no use of them, and nothing is pinned.
        assert_eq!((cache.stats().hits, cache.stats().pinned), (hits, 0));
    }
}

#[test]
fn bytes_have_hot_keys_too() {
    let cache = ByteCache::builder().shards(1).build().unwrap();
    (0..40u8).for_each(|key| drop(cache.insert(&[key], b"value").unwrap()));
    (0..8).for_each(|_| assert!(cache.get(&[17]).is_some() && cache.get(&[3]).is_some()));
    (0..3).for_each(|_| assert!(cache.get(&[3]).is_some()));
    assert_eq!(cache.hot_keys(2), [[3], [17]]);
}

#[test]
fn what_is_over_is_not_hot() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    let clock = || Duration::from_secs(NOW.load(SeqCst) as u64);
    let cache = EvictableCache::<u64, u64>::builder().time_to_live(Duration::from_secs(10)).clock(clock);
    let cache = cache.build().unwrap();
    drop(cache.insert(1, 1).unwrap());
    (0..5).for_each(|_| assert!(cache.get(&1).is_some()));
    NOW.store(5, SeqCst);
    drop(cache.insert(2, 2).unwrap());
    assert_eq!(cache.hot_keys(2), [1, 2]);
    NOW.store(12, SeqCst);
    assert_eq!(cache.hot_keys(2), [2]);
}

#[test]
fn a_key_s_clone_may_use_the_cache_and_may_panic() {
    static CACHE: OnceLock<EvictableCache<Key, u64>> = OnceLock::new();
    static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Key(u64);
    impl Clone for Key {
        fn clone(&self) -> Self {
            CACHE.get().unwrap().remove(&Key(self.0 + 1));
            assert_ne!(LEFT.fetch_sub(1, SeqCst), 0, "on purpose");
            Self(self.0)
        }
    }
    let cache = CACHE.get_or_init(|| EvictableCache::builder().shards(1).build().unwrap());
    (0..60).for_each(|key| drop(cache.insert(Key(key), key).unwrap()));
    assert!(!cache.hot_keys(60).is_empty());
    assert!(cache.len() < 60 && cache.stats().pinned == 0);
    LEFT.store(3, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| cache.hot_keys(60).len())).is_err());
    assert_eq!(cache.stats().pinned, 0);
}
