//! foyer's cache as a shrinker, ten lines: what a program does that keeps the cache it has. The product's tests have other crates'
//! caches (`crates/weir/tests/adapters.rs`). This one takes too long to build for each change's gate.

use procfs::process::Process;
use weir::{ScanReason, Shrink, Shrinker, settings};
use weir_testing::wait_until;

/// A cache of foyer's, which evicts down to a lower capacity. It has that until there is relief.
struct OfFoyer(foyer_memory::Cache<u64, Vec<u8>>, usize);

impl Shrink for OfFoyer {
    fn count(&self) -> usize {
        self.0.usage()
    }
    fn scan(&self, bytes: usize, _: ScanReason) -> usize {
        let before = self.count();
        let is_done = self.0.resize(before.saturating_sub(bytes)).is_ok();
        if is_done { before.saturating_sub(self.count()) } else { 0 }
    }
    fn relieved(&self) {
        self.0.resize(self.1).expect("the capacity that it had at first");
    }
}

/// Bytes of each value, and values of the cache.
const SIZE: usize = 16 << 10;
const VALUES: u64 = 6_000;
/// What the cache may hold where memory is not short, bytes.
const MOST: usize = 1 << 40;

fn resident() -> usize {
    let pages = Process::myself().and_then(|own| own.statm()).expect("its figures").resident;
    pages as usize * procfs::page_size() as usize
}

#[test]
fn foyer_s_cache_shrinks_with_the_process() {
    let cache =
        foyer_memory::CacheBuilder::new(MOST).with_weighter(|_: &u64, value: &Vec<u8>| value.capacity()).build();
    for key in 0..VALUES {
        cache.insert(key, vec![1; SIZE]);
    }
    let all = SIZE * VALUES as usize;
    assert_eq!(cache.usage(), all);
    // About as much goes as is asked for. How much more is by chance: each shard gives up whole entries.
    let freed = OfFoyer(cache.clone(), MOST).scan(1 << 20, ScanReason::Pressure);
    assert!((1 << 20..all / 2).contains(&freed), "{freed}");
    assert_eq!(cache.usage(), all - freed);
    let shrinker = Shrinker::builder("foyer").register(OfFoyer(cache.clone(), MOST)).unwrap();
    let limit = resident() - (24 << 20);
    settings::set("limit", &limit.to_string()).unwrap();
    wait_until("the process to be smaller than its limit", || resident() < limit);
    assert!(cache.usage() < all - freed - (16 << 20), "{} of {all}", cache.usage());
    settings::set("limit", "0").unwrap();
    wait_until("relief", || cache.capacity() == MOST);
    let stats = shrinker.stats();
    assert!(stats.freed > 0 && !stats.is_disabled, "{stats:?}");
}
