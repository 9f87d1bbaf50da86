//! Where Weir does not run: a plain cache with a bound.

use weir::{ByteCache, EvictableCache};

#[test]
fn a_cache_without_a_bound_of_the_program_s_has_one() {
    let cache = EvictableCache::<u64, u64>::builder().weigher(|_, _| 1 << 20).build().unwrap();
    (0..1000).for_each(|key| drop(cache.insert(key, key).unwrap()));
    assert_eq!((cache.stats().max_bytes, cache.len()), (256 << 20, 256));
    cache.set_max_bytes(300 << 20);
    (0..1000).for_each(|key| drop(cache.insert(key, key).unwrap()));
    assert_eq!(cache.len(), 300);
    cache.set_max_bytes(usize::MAX);
    assert_eq!((cache.stats().max_bytes, cache.len()), (256 << 20, 256));
}

#[test]
fn the_program_may_say_that_memory_is_short() {
    let cache = ByteCache::builder().max_bytes(1 << 20).build().unwrap();
    (0..100u64).for_each(|key| drop(cache.insert(&key.to_le_bytes(), &[7; 1000]).unwrap()));
    let before = cache.bytes();
    let freed = cache.evict(50_000);
    assert!(freed >= 50_000 && cache.bytes() == before - freed);
    let is_at = |key: u64| drop(cache.insert(&key.to_le_bytes(), &[7; 1000]).unwrap());
    (100..200u64).for_each(is_at);
    assert!(cache.bytes() <= before - freed, "it keeps to what is left");
    cache.relieved();
    (100..300u64).for_each(is_at);
    assert!(cache.bytes() > before);
}
