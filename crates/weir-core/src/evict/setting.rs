//! The four ways to run the queues. No one of them is best on every trace; each is best, or close to it, on a family.

/// Which entries leave the small queue for the main one, when that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Those hit at least twice while they were small (S3-FIFO's threshold).
    HitTwice,
    /// Those with a key seen more often lately than that of the main queue's victim, as in TinyLFU.
    SeenMore,
    /// All: the main queue alone decides.
    All,
}

/// How the queues are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The small queue's share of the target, in 1/256.
    pub small_share: u16,
    /// Who leaves it for the main queue.
    pub promotion: Promotion,
    /// A key that was evicted lately from the small queue comes back into the main one.
    pub ghost: bool,
    /// An entry goes round the main queue once for all its hits, as in CLOCK; else once for each, at most three times.
    pub once: bool,
}

impl Setting {
    /// 5 % small: files, blocks and objects in mixed use. What a cache begins with.
    pub const BALANCED: Self = Self { small_share: 13, promotion: Promotion::HitTwice, ghost: true, once: false };
    /// 30 % small and compared by frequency: a working set that moves slowly, or in bursts.
    pub const BURSTS: Self = Self { small_share: 77, promotion: Promotion::SeenMore, ghost: true, once: false };
    /// CLOCK, close to LRU: what was used last is used next, as where the working set drifts.
    pub const RECENT: Self = Self { small_share: 3, promotion: Promotion::All, ghost: false, once: true };
    /// 1 % small and compared by frequency, evicted keys not favoured: loops and scans larger than the cache.
    pub const FREQUENT: Self = Self { small_share: 3, promotion: Promotion::SeenMore, ghost: false, once: false };

    /// All of them, the first first.
    pub const ALL: [Self; 4] = [Self::BALANCED, Self::BURSTS, Self::RECENT, Self::FREQUENT];

    /// The small queue's part of `target`, bytes: at least 1, as a cache whose entries weigh 1 each may be small, and where the
    /// main queue had all of it, each entry would come into that without a test.
    pub const fn small(&self, target: usize) -> usize {
        // Split so that no target overflows.
        let part = (target >> 8) * self.small_share as usize + (((target & 255) * self.small_share as usize) >> 8);
        if part == 0 && target > 0 { 1 } else { part }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_small_queue_has_a_part_of_every_target() {
        for setting in Setting::ALL {
            assert_eq!(setting.small(0), 0);
            assert!((1..1000).all(|target| (1..=target).contains(&setting.small(target))));
            assert_eq!(setting.small(256 << 20), usize::from(setting.small_share) << 20);
            assert!(setting.small(usize::MAX) < usize::MAX / 3);
        }
    }
}
