//! Entries of different weights: light ones are kept rather than heavy ones where found entries count, and not where bytes do.

use crate::cache::{Cache, hash};
use weir_core::evict::replacement::favour::Favour;
use weir_core::evict::replacement::setting::Setting;

fn cache(target: usize, favour: Favour) -> Cache {
    let mut cache = Cache::fixed(target, Setting::Balanced);
    cache.policy.set_favour(favour);
    cache
}

/// 60,000 accesses to 2,000 keys, some far more often than others; each 20th key weighs 1,000 times as much as the others.
fn mixed() -> impl Iterator<Item = (u64, usize)> {
    let mut seed = 7_u64;
    (0..60_000).map(move |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = (seed >> 40) as f64 / (1_u64 << 24) as f64;
        let key = (2_000.0 * part.powi(3)) as u64;
        (key, if u64::from(hash(key)).is_multiple_of(20) { 1_000 } else { 1 })
    })
}

#[test]
fn light_entries_stay_where_found_ones_count() {
    // Room for each tenth heavy one, or for all that are light.
    let [entries, bytes] = [Favour::Entries, Favour::Bytes].map(|favour| {
        let mut cache = cache(10_000, favour);
        mixed().map(|(key, weight)| u32::from(cache.access_of(key, weight))).sum::<u32>()
    });
    assert!(entries > 45_000, "{entries} of 60,000 were found");
    assert!(entries > bytes + 5_000, "{entries}, and {bytes} where bytes count");
}

#[test]
fn what_is_heavy_is_refused_until_it_was_asked_for_often() {
    let full = |favour| {
        let mut cache = cache(100, favour);
        (0..3).for_each(|_| (0..100).for_each(|key| _ = cache.access_of(key, 1)));
        cache
    };
    let mut cache = full(Favour::Entries);
    let tries = (1..100).find(|_| {
        cache.access_of(1_000, 50);
        cache.holds(1_000)
    });
    assert!((2..=16).contains(&tries.unwrap_or(0)), "it came in at {tries:?}");
    assert!((0..100).any(|key| cache.holds(key)), "not all went for it");

    let mut cache = full(Favour::Entries);
    assert!(!cache.access_of(1_000, 2) && cache.holds(1_000), "twice the mean is not heavy");
    let mut cache = full(Favour::Bytes);
    assert!(!cache.access_of(1_000, 50) && cache.holds(1_000), "where bytes count nothing is refused for its weight");
}

#[test]
fn a_few_entries_refuse_nothing() {
    let mut cache = cache(31, Favour::Entries);
    (0..3).for_each(|_| (0..31).for_each(|key| _ = cache.access_of(key, 1)));
    cache.access_of(1_000, 20);
    assert!(cache.holds(1_000));
}
