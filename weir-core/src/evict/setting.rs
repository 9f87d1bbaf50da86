//! The four ways to run the queues. No one of them is best on every trace; each is best, or close to it, on a family.

/// How the queues are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The small queue's share of the target, in 1/256.
    pub small_share: u16,
    /// An entry leaves the small queue for the main one only if its key was seen more often than the main queue's victim.
    /// Without: if it was hit at least twice while it was small.
    pub filter: bool,
    /// A key that was evicted lately from the small queue comes back into the main one.
    pub ghost: bool,
}

impl Setting {
    /// 5 % small: files, blocks and objects in mixed use. What a cache begins with.
    pub const BALANCED: Self = Self { small_share: 13, filter: false, ghost: true };
    /// 30 % small and filtered: a working set that moves slowly, or in bursts.
    pub const BURSTS: Self = Self { small_share: 77, filter: true, ghost: true };
    /// 90 % small: what was used last is used next, as where each key is used again at once and then never.
    pub const RECENT: Self = Self { small_share: 230, filter: false, ghost: true };
    /// 1 % small and filtered, evicted keys not favoured: loops and scans larger than the cache.
    pub const FREQUENT: Self = Self { small_share: 3, filter: true, ghost: false };

    /// All of them, the first first.
    pub const ALL: [Self; 4] = [Self::BALANCED, Self::BURSTS, Self::RECENT, Self::FREQUENT];

    /// The small queue's part of `target`, bytes.
    pub const fn small(&self, target: usize) -> usize {
        // Split so that no target overflows.
        (target >> 8) * self.small_share as usize + (((target & 255) * self.small_share as usize) >> 8)
    }
}
