//! The order of a process's evictable caches: what cost least goes first.
//!
//! A scan at a priority wants a part of each cache. All these parts together are taken where bytes cost least, as processes do
//! among themselves ([`super::victim_order`]). The price at which they add up is the *bar*. Each cache gives what it has below
//! it, and of what costs just as much an equal share.
//!
//! Prices are those of the cost curve, as it was made last. What goes is taken off the coldest part. What came since is taken to
//! cost as much as the part in best use.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::cost::Cost;

/// Parts of a cache that are priced.
pub const PARTS: usize = 4;
/// The price of a cache of which nothing is known.
const UNKNOWN: u64 = u64::MAX;
/// Bits of a price that count.
const SIGNIFICANT: u32 = 11;
/// Bits of the number that a price is compared by: above the significant ones, up to 53 bits below them are counted.
const PRICE_BITS: u32 = SIGNIFICANT - 1 + 6;
/// Bits of it that one look at all caches finds: its sums are half a KiB of the caller's stack.
const DIGIT: u32 = 6;

/// What the bytes of a cache cost: written by the thread that makes the curve, and by the one that evicts. A reader may find a
/// mixture of two writes. Then one scan goes by it.
#[derive(Debug)]
pub struct Prices([Part; PARTS]);

/// Bytes, and what a byte of them costs: a number to compare, which rises along the parts.
#[derive(Debug)]
struct Part {
    bytes: AtomicU64,
    price: AtomicU64,
}

impl Prices {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self([const { Part { bytes: AtomicU64::new(0), price: AtomicU64::new(UNKNOWN) } }; PARTS])
    }

    /// These are the parts now, coldest first. Parts without bytes say nothing of what may come.
    pub(crate) fn tell(&self, parts: &[Cost; PARTS]) {
        if parts.iter().all(|part| part.bytes == 0) {
            return self.forget();
        }
        let mut dearest = 0;
        for (to, part) in self.0.iter().zip(parts) {
            dearest = price_of(part).map_or(dearest, |price| price.max(dearest));
            to.bytes.store(part.bytes, Relaxed);
            to.price.store(dearest, Relaxed);
        }
    }

    /// What was told says nothing any more: nothing can be evicted.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|part| part.price.store(UNKNOWN, Relaxed));
    }

    /// So many bytes went.
    pub(crate) fn take(&self, bytes: u64) {
        self.0.iter().fold(bytes, |left, part| {
            let rest = |bytes: u64| Some(bytes.saturating_sub(left));
            let before = part.bytes.fetch_update(Relaxed, Relaxed, rest).unwrap_or(0);
            left.saturating_sub(before)
        });
    }

    fn dearest(&self) -> u64 {
        self.0[PARTS - 1].price.load(Relaxed)
    }
}

impl Default for Prices {
    fn default() -> Self {
        Self::new()
    }
}

/// A byte's price, of 2^20, by which it is compared; `None`: there are no bytes. What differs by less than a thousandth has one
/// number of [`PRICE_BITS`] bits: the significant bits, with the number of bits below them above.
fn price_of(part: &Cost) -> Option<u64> {
    let price = (u128::from(part.ns()) << 20).checked_div(part.bytes.into())?;
    let price = u64::try_from(price).unwrap_or(u64::MAX);
    let below = (u64::BITS - price.leading_zeros()).saturating_sub(SIGNIFICANT);
    Some((u64::from(below) << (SIGNIFICANT - 1)) + (price >> below))
}

/// A cache in a scan: its prices, and the bytes that it could free now.
#[derive(Clone, Copy, Debug)]
pub struct Priced<'a> {
    prices: &'a Prices,
    bytes: u64,
}

impl<'a> Priced<'a> {
    /// Of a cache with these bytes; `None`: its prices are not known.
    pub(crate) fn new(prices: &'a Prices, bytes: usize) -> Option<Self> {
        (prices.dearest() != UNKNOWN).then_some(Self { prices, bytes: bytes as u64 })
    }

    /// Bytes that it could free now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Bytes that cost less than so much.
    fn below(&self, price: u64) -> u64 {
        if self.prices.dearest() < price {
            return self.bytes;
        }
        self.parts().filter(|&(of_part, _)| of_part < price).map(|(_, bytes)| bytes).sum()
    }

    /// Its bytes by their prices: together all that it has.
    fn parts(self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut left = self.bytes;
        self.prices.0.iter().enumerate().map(move |(at, part)| {
            // What came since costs as much as the dearest.
            let bytes = if at == PARTS - 1 { left } else { part.bytes.load(Relaxed).min(left) };
            left -= bytes;
            (part.price.load(Relaxed), bytes)
        })
    }
}

/// Up to where a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    price: u64,
    /// Bytes that are wanted of those that cost as much as the bar.
    left: u64,
    /// All bytes that cost as much.
    alike: u64,
}

impl Bar {
    /// The bar at which these caches give so many bytes together, or all that they have.
    pub(crate) fn new<'a>(caches: impl Iterator<Item = Priced<'a>> + Clone, wanted: u64) -> Self {
        let (mut price, mut cheaper, mut alike) = (0u64, 0u64, 0u64);
        for shift in (0..PRICE_BITS.div_ceil(DIGIT)).rev().map(|digit| digit * DIGIT) {
            // One look at all caches, under a lock: the bytes by the next digit, where all digits before are the bar's.
            let mut sums = [0u64; 1 << DIGIT];
            for cache in caches.clone().filter(|cache| cache.prices.dearest() >> shift >> DIGIT >= price) {
                for (of_part, bytes) in cache.parts().filter(|part| part.0 >> shift >> DIGIT == price) {
                    let sum = &mut sums[(of_part >> shift) as usize % sums.len()];
                    *sum = sum.saturating_add(bytes);
                }
            }
            let mut digit = 0;
            while digit + 1 < sums.len() && cheaper.saturating_add(sums[digit]) < wanted {
                cheaper = cheaper.saturating_add(sums[digit]);
                digit += 1;
            }
            (price, alike) = (price << DIGIT | digit as u64, sums[digit]);
        }
        Self { price, left: wanted.saturating_sub(cheaper).min(alike), alike }
    }

    /// Bytes that one of them is to give.
    pub(crate) fn part_of(&self, cache: &Priced<'_>) -> u64 {
        let cheaper = cache.below(self.price);
        let alike = cache.below(self.price.saturating_add(1)).saturating_sub(cheaper);
        let share = (u128::from(alike) * u128::from(self.left)).div_ceil(u128::from(self.alike.max(1)));
        cheaper.saturating_add(u64::try_from(share).unwrap_or(alike).min(alike))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn prices(parts: [(u64, u64); PARTS]) -> Prices {
        let prices = Prices::new();
        prices.tell(&parts.map(|(bytes, price)| Cost { bytes, once_ns: bytes * price, ..Cost::default() }));
        prices
    }

    fn given(caches: &[(Prices, usize)], wanted: u64) -> Vec<u64> {
        let all = || caches.iter().filter_map(|(prices, bytes)| Priced::new(prices, *bytes));
        let bar = Bar::new(all(), wanted);
        all().map(|cache| bar.part_of(&cache)).collect()
    }

    #[test]
    fn the_cheapest_quarters_go_first_whichever_cache_they_are_of() {
        let cheap = prices([(100, 1), (100, 2), (100, 3), (100, 10)]);
        let dear = prices([(100, 2), (100, 6), (100, 7), (100, 8)]);
        let caches = [(cheap, 400), (dear, 400)];
        assert_eq!(given(&caches, 60), [60, 0]);
        assert_eq!(given(&caches, 200), [150, 50], "of one price each gives a share");
        assert_eq!(given(&caches, 650), [300, 350]);
        assert_eq!(given(&caches, 10_000), [400, 400]);
        assert_eq!(given(&caches, 0), [0, 0]);
        caches[0].0.take(350);
        assert_eq!(given(&[(prices([(0, 0), (0, 0), (0, 0), (50, 10)]), 50)], 20), [20]);
        assert_eq!(given(&caches, 100), [0, 100], "its cheap bytes are gone");
    }

    #[test]
    fn what_came_since_costs_as_much_as_what_is_in_best_use_and_what_is_forgotten_has_no_price() {
        let caches = [(prices([(10, 1), (10, 1), (10, 1), (10, 5)]), 1000), (prices([(10, 7); PARTS]), 5)];
        assert_eq!(given(&caches, 100), [100, 0]);
        assert_eq!(given(&caches, 1005), [1000, 5]);
        caches[0].0.forget();
        assert_eq!(given(&caches, 3), [3], "of the other alone");
        assert!(Priced::new(&Prices::new(), 7).is_none());
    }

    #[test]
    fn a_cache_without_hits_is_the_cheapest() {
        let caches = [(prices([(10, 0); PARTS]), 40), (prices([(10, 1); PARTS]), 40)];
        assert_eq!(given(&caches, 50), [40, 10]);
    }

    proptest! {
        #[test]
        fn together_they_give_what_is_wanted(
            all in prop::collection::vec((core::array::from_fn(|_| (0..1000u64, 0..6u64)), 0..4000usize), 1..12),
            wanted in 0..20_000u64,
        ) {
            let caches: Vec<_> = all.iter().map(|&(parts, bytes)| (prices(parts), bytes)).collect();
            let given = given(&caches, wanted);
            let most: u64 = all.iter().map(|&(_, bytes)| bytes as u64).sum();
            let sum: u64 = given.iter().sum();
            // Shares of one price are rounded up.
            prop_assert!(sum >= wanted.min(most) && sum <= wanted.min(most) + all.len() as u64, "{sum} of {wanted}");
            prop_assert!(given.iter().zip(&all).all(|(&given, &(_, bytes))| given <= bytes as u64));
        }

        #[test]
        fn any_numbers_do_no_harm(words: [[u64; 2]; PARTS], bytes: usize, wanted: u64, taken: u64) {
            let prices = Prices::new();
            prices.tell(&words.map(|[bytes, once_ns]| Cost { bytes, once_ns, ..Cost::default() }));
            prices.take(taken);
            let cache = Priced::new(&prices, bytes).unwrap();
            prop_assert!(Bar::new([cache, cache].into_iter(), wanted).part_of(&cache) <= bytes as u64);
        }
    }
}
