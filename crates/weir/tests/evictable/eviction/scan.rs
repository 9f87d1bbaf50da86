//! The policy at work in the cache itself: what is used once does not drive out what is used again.

use weir::EvictableCache;

/// Hits of every hundred look-ups, each of which inserts what it misses.
fn hits(cache: &EvictableCache<u64, [u8; 64]>, keys: impl Iterator<Item = u64>) -> usize {
    let (mut hits, mut all) = (0, 0);
    for key in keys {
        all += 1;
        if cache.get(&key).is_some() {
            hits += 1;
        } else {
            drop(cache.insert(key, [0; 64]).unwrap());
        }
    }
    hits * 100 / all
}

fn of_400() -> EvictableCache<u64, [u8; 64]> {
    EvictableCache::builder().weigher(|_, _| 100).max_bytes(40_000).shards(1).build().unwrap()
}

#[test]
fn a_loop_that_is_larger_than_the_cache_is_hit_in_part() {
    let percent = hits(&of_400(), (0..100_000).map(|turn| turn % 500));
    assert!(percent >= 30, "{percent} %: least recently used would have 0, the best that is possible 80");
}

#[test]
fn a_scan_leaves_what_is_used_again() {
    let cache = of_400();
    hits(&cache, (0..40_000).map(|turn| turn % 200));
    hits(&cache, 1_000_000..1_004_000);
    let kept = (0..200).filter(|key| cache.contains(key)).count();
    assert!(kept >= 150, "{kept} of 200");
}
