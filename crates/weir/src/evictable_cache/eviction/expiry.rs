//! How long entries live: the times that a cache gives them, and what becomes of entries whose time is over.
//!
//! Times lie beside the policy's slots, in caches that have any. An entry whose time is over is no hit. It leaves as it is
//! found: by a look-up, by an eviction, or by an insertion, each of which looks at a few.

use core::time::Duration;
use weir_core::base::time::{Nanos, Time};
use weir_core::evict::lifetime::{FOR_EVER, Times};

use crate::evictable_cache::closure::Closure;
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::host::coarse_ns;

/// How long an entry lives, as a cache's [`expire_after`](crate::EvictableCacheBuilder::expire_after) says. A time that is
/// `None` is as the cache has it for all entries. Times are exact to a tick of the kernel's coarse clock, either way: 4 ms at the
/// usual 250 ticks a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// How long from the insertion on.
    pub live: Option<Duration>,
    /// How long since the last use.
    pub idle: Option<Duration>,
}

/// A closure that says how long an entry lives.
pub type ExpireAfter<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value) -> Expiry + Send + Sync;
/// A closure that says what time it is, ns.
pub type Clock = dyn Fn() -> u64 + Send + Sync;

/// How long the entries of a cache live.
pub struct Ages<C: Content> {
    pub clock: Option<Closure<Clock>>,
    pub by_entry: Option<Closure<ExpireAfter<C>>>,
    /// ns, as the next one.
    pub live: Nanos,
    pub idle: Nanos,
}

/// A time in ns; one of centuries is for ever.
pub fn nanoseconds(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).map_or(FOR_EVER, Nanos)
}

impl<C: Content> Ages<C> {
    /// For ever.
    pub const fn new() -> Self {
        Self { clock: None, by_entry: None, live: FOR_EVER, idle: FOR_EVER }
    }

    /// Whether entries have an end.
    pub fn are_there(&self) -> bool {
        self.live.min(self.idle) != FOR_EVER || self.by_entry.is_some()
    }

    /// The time. The clock may be the program's code: to be called under no lock.
    pub fn now(&self) -> Time {
        Time(self.clock.as_ref().map_or_else(coarse_ns, |clock| clock()))
    }

    /// The times of an entry that is to be put in, and what time it is. The program's code as well.
    pub fn times_of(&self, key: &C::Key, value: &C::Value) -> (Times, Time) {
        let own = self.by_entry.as_ref().map(|by| by(key, value)).unwrap_or_default();
        let or = |own: Option<Duration>, all: Nanos| own.map_or(all, nanoseconds);
        let now = self.now();
        (Times::new(now, or(own.live, self.live), or(own.idle, self.idle)), now)
    }
}
