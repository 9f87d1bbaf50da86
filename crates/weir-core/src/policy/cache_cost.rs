//! What an evictable cache would lose by being smaller.
//!
//! The share of its hits that is left to a cache of which the part x is left is taken to be x^a. That holds for keys that are wanted
//! as Zipf's law says. The exponent follows from the cache's edge: keys that come back after they were evicted are hits that
//! nearly twice the room would have brought. Not all of these come back in time to be seen, so they count threefold: with that
//! the foretold losses are near the real ones (`tests/evict/worth.rs`). Of a cache to which no key came back, the edge is not
//! known, and the exponent is taken to be 1/2.
//!
//! Of most entries that pressure takes, the keys are not remembered, and a cache that grows again evicts nothing. So hardly a key
//! comes back, and that says little. Where more entries went for pressure than for room, the exponent is 1/2 at least.

use crate::base::cost::Cost;

/// Parts in which a cache is told.
pub const STEPS: usize = super::prices::PARTS;
/// Exponents in thousandths, and for each the millionths of all hits that are lost with a cache's first quarter, half, three
/// quarters and all: 1 - x^a. What lies between is taken to lie on straight lines.
const LOST: [(u64, [u64; STEPS]); 5] = [
    (0, [0, 0, 0, WHOLE]),
    (125, [35_321, 82_996, 159_104, WHOLE]),
    (250, [69_395, 159_104, 292_893, WHOLE]),
    (500, [133_975, 292_893, 500_000, WHOLE]),
    (1000, [250_000, 500_000, 750_000, WHOLE]),
];
const WHOLE: u64 = 1_000_000;
/// The exponent where the edge is not known, thousandths.
const UNKNOWN_EDGE: u64 = 500;
/// The exponent of a cache of which as many keys came back as there were hits: 3 / 0.9, as the keys of 9/10 of its entries are
/// remembered after their eviction ([`crate::evict::replacement`]); thousandths.
const RETURNS_WORTH: u64 = 3333;
/// Time of a miss that is not known, and of an access to storage that a shrinker speaks of, ns: a read of a solid-state disk.
pub const STORAGE_NS: u64 = 100_000;
/// Seconds of which the rates are.
const RATE_S: u64 = 1000;

/// A cache, as far as its cost goes. Rates are in 1,000 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes of all its entries.
    pub bytes: u64,
    /// Bytes that may go.
    pub spare_bytes: u64,
    /// Hits.
    pub hit_rate: u64,
    /// Insertions of keys that had been evicted lately.
    pub return_rate: u64,
    /// More entries were evicted for pressure than for room: the returns tell too little.
    pub is_edge_hidden: bool,
    /// Mean time of a miss, ns; 0: not known.
    pub miss_ns: u64,
}

/// The parts of a cache, coldest first, in a process whose evictable caches have `all_hits` hits in 1,000 seconds together.
pub fn parts(cache: &CacheUse, all_hits: u64) -> [Cost; STEPS] {
    let miss_ns = if cache.miss_ns == 0 { STORAGE_NS } else { cache.miss_ns };
    let (spare, lost) = (cache.spare_bytes.min(cache.bytes), lost(cache));
    let narrow = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
    core::array::from_fn(|step| {
        let [from, to] = [step, step + 1].map(|end| narrow(u128::from(cache.bytes) * end as u128 / STEPS as u128));
        let share = lost[step] - step.checked_sub(1).map_or(0, |before| lost[before]);
        // Millionths of a hit in 1,000 seconds.
        let hits = u128::from(cache.hit_rate) * u128::from(share);
        let whole = Cost {
            bytes: to - from,
            once_ns: 0,
            second_ns: narrow(hits.saturating_mul(miss_ns.into()) / u128::from(WHOLE * RATE_S)),
            lost_ppm: narrow(hits / u128::from(all_hits.max(1))),
        };
        whole.part(spare.clamp(from, to) - from)
    })
}

/// Millionths of its hits that a cache loses with each quarter more of its bytes.
fn lost(cache: &CacheUse) -> [u64; STEPS] {
    let seen = (cache.return_rate.saturating_mul(RETURNS_WORTH) / cache.hit_rate.max(1)).min(1000);
    let exponent = match cache.return_rate {
        0 => UNKNOWN_EDGE,
        _ if cache.is_edge_hidden => seen.max(UNKNOWN_EDGE),
        _ => seen,
    };
    let upper = LOST.iter().position(|&(at, _)| at >= exponent && at > 0).unwrap_or(LOST.len() - 1);
    let ((from, low), (to, high)) = (LOST[upper - 1], LOST[upper]);
    core::array::from_fn(|step| low[step] + (high[step] - low[step]) * (exponent - from) / (to - from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cache(return_rate: u64) -> CacheUse {
        let hit_rate = 1_000_000;
        CacheUse { bytes: 4000, spare_bytes: 4000, hit_rate, return_rate, miss_ns: 1_000_000, is_edge_hidden: false }
    }

    #[test]
    fn the_more_keys_come_back_the_dearer_are_the_coldest_bytes() {
        let lost = |returns| parts(&cache(returns), 1_000_000).map(|part| part.lost_ppm);
        assert_eq!(lost(0), [133_975, 158_918, 207_107, 500_000], "the edge is not known");
        assert_eq!(lost(1), [0, 0, 0, 1_000_000]);
        assert_eq!(lost(u64::MAX), [250_000; 4]);
        assert!(lost(100_000)[0] > lost(50_000)[0]);
        assert_eq!(parts(&cache(0), 2_000_000)[0].lost_ppm, 66_987, "the other half of the hits are another cache's");
        // 1,000 hits a second of a millisecond each: all of each second's time, if all of it went.
        assert_eq!(parts(&cache(0), 1_000_000).iter().map(|part| part.second_ns).sum::<u64>(), 1_000_000_000);
    }

    #[test]
    fn few_returns_tell_nothing_of_a_cache_that_gave_more_for_pressure_than_for_room() {
        let hidden = |returns| parts(&CacheUse { is_edge_hidden: true, ..cache(returns) }, 1_000_000);
        for few in [0, 1, 10_000] {
            assert_eq!(hidden(few), parts(&cache(0), 1_000_000));
        }
        assert_eq!(hidden(250_000), parts(&cache(250_000), 1_000_000), "many are told all the same");
    }

    #[test]
    fn what_may_not_go_is_the_part_in_best_use() {
        let spare = parts(&CacheUse { spare_bytes: 1500, ..cache(0) }, 1_000_000);
        assert_eq!(spare.map(|part| part.bytes), [1000, 500, 0, 0]);
        assert_eq!(spare.map(|part| part.lost_ppm), [133_975, 79_459, 0, 0]);
    }

    #[test]
    fn a_miss_that_was_never_timed_counts_as_an_access_to_storage() {
        let parts = parts(&CacheUse { miss_ns: 0, ..cache(0) }, 1_000_000);
        // 133.975 hits a second.
        assert_eq!(parts[0].second_ns, 133_975 * STORAGE_NS / 1000);
    }

    proptest! {
        #[test]
        fn prices_rise_and_nothing_is_lost_twice(words: [u64; 5], all_hits: u64, is_small: bool, is_edge_hidden: bool) {
            let [bytes, spare_bytes, hit_rate, return_rate, miss_ns] = words.map(|word| word >> if is_small { 24 } else { 2 });
            let cache = CacheUse { bytes, spare_bytes, hit_rate, return_rate, miss_ns, is_edge_hidden };
            let parts = parts(&cache, all_hits);
            prop_assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), bytes.min(spare_bytes));
            let hits = u128::from(hit_rate) * 1_000_000 / u128::from(all_hits.max(1)) + 1;
            prop_assert!(parts.iter().map(|part| u128::from(part.lost_ppm)).sum::<u128>() <= hits);
            let whole = CacheUse { spare_bytes: bytes, ..cache };
            let prices = lost(&whole);
            let steps = [prices[0], prices[1] - prices[0], prices[2] - prices[1], prices[3] - prices[2]];
            // Each is rounded down.
            prop_assert!(steps.windows(2).all(|two| two[0] <= two[1] + 2), "{steps:?}");
        }
    }
}
