//! What a cache is worth to its program: how often it hits, how often a key comes back that was evicted, how long a miss takes.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::base::time::{Nanos, Time};
use weir_core::platform::Clock;

use super::host::system;

/// One computation in so many is timed, the first among them: to read the clock is a system call here.
const TIMED: u64 = 16;
/// From so many timed computations on a time counts as at most [`CAP`] means. A process that was stopped meanwhile, or a connection
/// that hung, says little of the next miss.
const KNOWN: u64 = 8;
/// See [`KNOWN`].
const CAP: u64 = 16;
/// At so many, half of them are forgotten: the mean is that of the last thousand or so.
const REMEMBERED: u64 = 1024;
/// What was before counts as much as so much time: rates of one window alone would swing.
const REMEMBERED_NS: u64 = 1_000_000_000;
/// Rates are in 1,000 seconds, so that few are zero.
const RATE_NS: u64 = 1_000_000_000_000;

/// On a cache line of its own, as misses write it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Worth {
    computed: AtomicU64,
    /// Time of those that were timed and not forgotten, ns.
    compute_ns: AtomicU64,
    timed: AtomicU64,
    /// The time of a miss that the program said, ns; 0: it said none.
    said_ns: u64,
    /// When the cache was made, ns; the rest is as of the last look at the rates.
    born: u64,
    at: AtomicU64,
    hits: AtomicU64,
    returns: AtomicU64,
    /// Of hits in the upper half, and of returns in the lower one.
    rates: AtomicU64,
}

impl Worth {
    /// Of a cache that is made now, of which a miss takes so long by the program's word, ns; 0: it says nothing.
    pub fn new(said_ns: u64) -> Self {
        let (born, zero) = (system().now().0, || AtomicU64::new(0));
        let [computed, compute_ns, timed, hits, returns, rates] = [(); 6].map(|()| zero());
        Self { computed, compute_ns, timed, said_ns, born, at: AtomicU64::new(born), hits, returns, rates }
    }

    /// A computation begins: when, if it is to be timed.
    pub fn begin(&self) -> Option<Time> {
        self.computed.fetch_add(1, Relaxed).is_multiple_of(TIMED).then(|| system().now())
    }

    /// It has found a value.
    pub fn end(&self, begun: Option<Time>) {
        if let Some(begun) = begun {
            self.note(system().now() - begun);
        }
    }

    fn note(&self, took: Nanos) {
        let is_known = self.timed.load(Relaxed) >= KNOWN;
        let most = if is_known { self.miss_ns().max(1).saturating_mul(CAP) } else { u64::MAX };
        self.compute_ns.fetch_add(took.0.min(most), Relaxed);
        // One thread finds this number. What others add meanwhile stays.
        if self.timed.fetch_add(1, Relaxed) + 1 == REMEMBERED {
            self.compute_ns.fetch_sub(self.compute_ns.load(Relaxed) / 2, Relaxed);
            self.timed.fetch_sub(REMEMBERED / 2, Relaxed);
        }
    }

    /// Mean time of a computation of late, ns. Where none was timed, what the program said.
    pub fn miss_ns(&self) -> u64 {
        self.compute_ns.load(Relaxed).checked_div(self.timed.load(Relaxed)).unwrap_or(self.said_ns)
    }

    /// Brings the rates of hits and of returns up to date, which are so many since the cache was made. For one thread at a time.
    pub fn rates(&self, now: Time, hits: u64, returns: u64) -> [u64; 2] {
        let at = self.at.swap(now.0, Relaxed);
        let passed = now.0.saturating_sub(at);
        let before = REMEMBERED_NS.min(at.saturating_sub(self.born));
        let old = self.rates.load(Relaxed);
        let rate = |old: u64, since: &AtomicU64, count: u64| {
            let more = count.saturating_sub(since.swap(count, Relaxed));
            let sum = u128::from(old) * u128::from(before) + u128::from(more) * u128::from(RATE_NS);
            // A rate above 4 million a second is told as that.
            u32::try_from(sum / u128::from((before + passed).max(1))).unwrap_or(u32::MAX)
        };
        let rates = [rate(old >> 32, &self.hits, hits), rate(old & u64::from(u32::MAX), &self.returns, returns)];
        let rates = rates.map(u64::from);
        self.rates.store(rates[0] << 32 | rates[1], Relaxed);
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_the_counts_and_remember_a_second() {
        let worth = Worth { born: 0, at: AtomicU64::new(0), ..Worth::new(0) };
        let at = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(worth.rates(at(500), 50, 0), [100_000, 0], "100 a second since the cache was made");
        assert_eq!(worth.rates(at(1500), 50, 10), [33_333, 6_666], "half a second of 100, and one of none");
        assert_eq!(worth.rates(at(1500), 50, 10), [33_333, 6_666], "no time has passed");
        assert_eq!(worth.rates(at(1_001_500), 50, 10), [33, 6], "1,000 seconds of none");
        assert_eq!(worth.rates(at(1_001_501), u64::MAX, 10)[0], u64::from(u32::MAX));
    }

    #[test]
    fn one_computation_in_sixteen_is_timed() {
        let worth = Worth::new(7);
        assert_eq!((worth.miss_ns(), Worth::new(0).miss_ns()), (7, 0), "nothing is known but what was said");
        assert_eq!((0..33).filter(|_| worth.begin().is_some()).count(), 3);
        [10, 20, 60].iter().for_each(|&ns| worth.note(Nanos(ns)));
        assert_eq!(worth.miss_ns(), 30);
    }

    #[test]
    fn the_mean_forgets_and_one_long_time_does_not_make_it() {
        let worth = Worth::new(0);
        let note = |count, ns| (0..count).for_each(|_| worth.note(Nanos(ns)));
        note(100_000, 1_000_000);
        note(1, 8 * 3600 * 1_000_000_000);
        assert!((1_000_000..1_050_000).contains(&worth.miss_ns()), "{}", worth.miss_ns());
        note(10_000, 100_000_000);
        assert!((90_000_000..=100_000_000).contains(&worth.miss_ns()), "{}", worth.miss_ns());
        note(10_000, 1_000);
        assert!(worth.miss_ns() < 300_000, "{}", worth.miss_ns());
    }
}
