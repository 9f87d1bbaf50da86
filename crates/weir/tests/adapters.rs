//! Caches of other crates as shrinkers, ten lines each: what a program does that keeps the cache it has. foyer's takes as long to
//! build as all of these and more: `lab/weir-lab/tests/adapters.rs` has it.

use mini_moka::sync::ConcurrentCacheExt;
use std::sync::{Arc, Mutex};
use weir::shrinker::STOP;
use weir::{ScanReason, Shrink, Shrinker, settings};
use weir_testing::wait_until;

mod common;

/// A cache of moka's. It has no call that evicts: what it comes upon first goes.
struct OfMoka(moka::sync::Cache<u64, Arc<[u8]>>);

impl Shrink for OfMoka {
    fn count(&self) -> usize {
        self.0.weighted_size() as usize
    }
    fn scan(&self, bytes: usize, _: ScanReason) -> usize {
        let before = self.count();
        let mut left = bytes as isize;
        self.0
            .iter()
            .take_while(|(_, value)| (left > 0, left -= value.len() as isize).0)
            .for_each(|(key, _)| self.0.invalidate(&*key));
        self.0.run_pending_tasks();
        before.saturating_sub(self.count())
    }
}

/// A cache of mini-moka's, which has no such call either. Its iterator holds a lock that a removal needs.
struct OfMiniMoka(mini_moka::sync::Cache<u64, Arc<[u8]>>);

impl Shrink for OfMiniMoka {
    fn count(&self) -> usize {
        self.0.weighted_size() as usize
    }
    fn scan(&self, bytes: usize, _: ScanReason) -> usize {
        let before = self.count();
        let mut left = bytes as isize;
        let wanted = self.0.iter().take_while(|entry| (left > 0, left -= entry.value().len() as isize).0);
        let keys: Vec<u64> = wanted.map(|entry| *entry.key()).collect();
        keys.iter().for_each(|key| self.0.invalidate(key));
        self.0.sync();
        before.saturating_sub(self.count())
    }
}

#[derive(Clone)]
struct ByLength;

impl quick_cache::Weighter<u64, Arc<[u8]>> for ByLength {
    fn weight(&self, _: &u64, value: &Arc<[u8]>) -> u64 {
        value.len() as u64
    }
}

/// A cache of quick_cache's, which evicts down to a lower capacity. It has that until there is relief.
struct OfQuickCache(Arc<quick_cache::sync::Cache<u64, Arc<[u8]>, ByLength>>, u64);

impl Shrink for OfQuickCache {
    fn count(&self) -> usize {
        self.0.weight() as usize
    }
    fn scan(&self, bytes: usize, _: ScanReason) -> usize {
        let before = self.count();
        self.0.set_capacity(before.saturating_sub(bytes) as u64);
        before.saturating_sub(self.count())
    }
    fn relieved(&self) {
        self.0.set_capacity(self.1);
    }
}

/// A cache of lru's behind a lock, which is not waited for: who holds it may wait for memory.
struct OfLru(Arc<Mutex<lru::LruCache<u64, Vec<u8>>>>);

impl Shrink for OfLru {
    fn count(&self) -> usize {
        self.0.try_lock().map_or(0, |cache| cache.iter().map(|(_, value)| value.capacity()).sum())
    }
    fn scan(&self, bytes: usize, _: ScanReason) -> usize {
        let Ok(mut cache) = self.0.try_lock() else { return STOP };
        let oldest = core::iter::from_fn(|| cache.pop_lru().map(|(_, value)| value.capacity()));
        let mut freed = 0;
        oldest.take_while(|size| (freed += size, freed < bytes).1).for_each(drop);
        freed
    }
}

/// Bytes of each value, and values of each cache.
const SIZE: usize = 16 << 10;
const VALUES: u64 = 2_000;

#[test]
fn caches_of_other_crates_shrink_with_the_process() {
    let moka =
        moka::sync::Cache::builder().weigher(|_, value: &Arc<[u8]>| value.len() as u32).max_capacity(1 << 40).build();
    let mini = mini_moka::sync::Cache::builder();
    let mini = mini.weigher(|_, value: &Arc<[u8]>| value.len() as u32).max_capacity(1 << 40).build();
    let quick = Arc::new(quick_cache::sync::Cache::with_weighter(1 << 20, 1 << 40, ByLength));
    let lru = Arc::new(Mutex::new(lru::LruCache::unbounded()));
    for key in 0..VALUES {
        moka.insert(key, vec![1; SIZE].into());
        mini.insert(key, vec![4; SIZE].into());
        quick.insert(key, vec![2; SIZE].into());
        lru.lock().unwrap().put(key, vec![3; SIZE]);
    }
    moka.run_pending_tasks();
    mini.sync();
    let all = SIZE * VALUES as usize;
    let weights = [moka.weighted_size() as usize, mini.weighted_size() as usize, quick.weight() as usize];
    assert_eq!((weights, OfLru(lru.clone()).count()), ([all; 3], all));
    // One by one: about as much goes as is asked for, and not half of it all. How much more is by chance: parts that are chosen by
    // a hash with a seed give up whole entries each.
    for freed in [
        OfMoka(moka.clone()).scan(1 << 20, ScanReason::Pressure),
        OfMiniMoka(mini.clone()).scan(1 << 20, ScanReason::Pressure),
        OfQuickCache(quick.clone(), 1 << 40).scan(1 << 20, ScanReason::Pressure),
        OfLru(lru.clone()).scan(1 << 20, ScanReason::Pressure),
    ] {
        assert!((1 << 20..all / 2).contains(&freed), "{freed}");
    }
    assert_eq!(settings::get("watermark_scale"), Ok(250));
    let shrinkers = [
        Shrinker::builder("moka").register(OfMoka(moka.clone())).unwrap(),
        Shrinker::builder("mini-moka").register(OfMiniMoka(mini.clone())).unwrap(),
        Shrinker::builder("quick_cache").register(OfQuickCache(quick.clone(), 1 << 40)).unwrap(),
        Shrinker::builder("lru").register(OfLru(lru.clone())).unwrap(),
    ];
    assert_eq!(settings::get("watermark_scale"), Ok(500), "what goes on another allocator goes back late");
    let resident = || weir_linux::platform::other_malloc::resident().unwrap() as usize;
    let limit = resident() - (24 << 20);
    settings::set("limit", &limit.to_string()).unwrap();
    wait_until("the process to be smaller than its limit", || resident() < limit);
    settings::set("limit", "0").unwrap();
    wait_until("relief", || quick.capacity() >= 1 << 39);
    assert!(shrinkers.iter().any(|shrinker| shrinker.stats().freed > 0));
    assert!(shrinkers.iter().all(|shrinker| !shrinker.stats().is_disabled));
}
