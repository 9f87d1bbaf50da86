//! When what is left of a cache is to come together ([`super::gather`]), and how far that has come.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A round begins when so large a part of what was held has gone.
const PART: usize = 6;
/// No shard is left: no round is under way.
const OVER: u64 = u64::MAX;

/// How far a round has come: the shard, and the entry's number there, that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub shard: u32,
    pub number: u32,
}

impl At {
    fn packed(self) -> u64 {
        u64::from(self.shard) << 32 | u64::from(self.number)
    }
}

/// How far the round has come.
pub struct Gathering {
    /// The most that was held since the last round began, bytes.
    most: AtomicUsize,
    /// An [`At`], the shard in the upper half.
    next: AtomicU64,
    /// The cache is the parent's, in a forked child.
    is_inherited: AtomicBool,
}

impl Gathering {
    /// None was begun.
    pub const fn new() -> Self {
        Self { most: AtomicUsize::new(0), next: AtomicU64::new(OVER), is_inherited: AtomicBool::new(false) }
    }

    /// What was held before an eviction, and is now: begins a round where it is due.
    pub fn note(&self, before: usize, now: usize) {
        let most = self.most.fetch_max(before, Relaxed).max(before);
        if now <= most - most / PART {
            self.most.store(now, Relaxed);
            self.next.store(0, Relaxed);
        }
    }

    /// Where the round is, in a cache of so many shards.
    pub fn at(&self, shards: usize) -> Option<At> {
        let next = self.next.load(Relaxed);
        let at = At { shard: (next >> 32) as u32, number: next as u32 };
        ((at.shard as usize) < shards).then_some(at)
    }

    /// What was at `at` has been looked at: `next` comes now. It is left where another thread was there too, or a round has begun.
    pub fn go_on(&self, at: At, next: At) {
        let _ = self.next.compare_exchange(at.packed(), next.packed(), Relaxed, Relaxed);
    }

    /// Whether the cache is the parent's, in a forked child.
    pub fn is_inherited(&self) -> bool {
        self.is_inherited.load(Relaxed)
    }

    /// In a forked child: nothing moves. Its pages are its parent's too, so none would become free, and each write copies one.
    pub fn inherit(&self) {
        self.is_inherited.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_goes_on_within_a_shard_and_begins_anew() {
        let gathering = Gathering::new();
        assert_eq!(gathering.at(8), None);
        gathering.note(600, 501);
        assert_eq!(gathering.at(8), None);
        gathering.note(501, 500);
        let begin = At { shard: 0, number: 0 };
        let within = At { shard: 0, number: 17 };
        assert_eq!(gathering.at(8), Some(begin));
        gathering.go_on(begin, within);
        assert_eq!(gathering.at(8), Some(within));
        // Another thread was at the same entries.
        gathering.go_on(begin, At { shard: 0, number: 3 });
        assert_eq!(gathering.at(8), Some(within));
        gathering.note(500, 400);
        gathering.go_on(within, At { shard: 1, number: 0 });
        assert_eq!(gathering.at(8), Some(begin));
        gathering.go_on(begin, At { shard: 8, number: 0 });
        assert_eq!(gathering.at(8), None);
    }
}
