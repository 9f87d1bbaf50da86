//! How many hold an entry: the cache itself, while the entry is in it, and every pin.
//!
//! Pins are taken under the lock of the entry's shard, or from a pin that is held; they are given up under none.
//! The thread that gives up the last hold frees the entry. The cache takes an entry out for eviction only if its own hold is
//! the only one. Under the lock nothing can then pin the entry: a pin is taken under the lock, or from another pin, and
//! there is none.
//!
//! The interleavings that this excludes:
//!
//! - An eviction looks at the count, a pin is taken, the eviction frees. The lock excludes it.
//! - Two give up their holds at once, and both or neither free. The subtraction is one step.
//! - An eviction frees while the thread that gave up the last pin still reads the value. Giving up releases, looking
//!   acquires.

use crate::platform::sync::{AtomicU32, constructor, fence};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// More holds than this of one entry end the process: forgotten guards must not wrap the count.
const MOST: u32 = i32::MAX as u32;

/// The count of holds.
#[derive(Debug)]
pub struct Pins(AtomicU32);

impl Pins {
    constructor! {
        /// Held `holds` times.
        pub fn new(holds: u32) -> Self {
            Self(AtomicU32::new(holds))
        }
    }

    /// Takes a hold: under the shard's lock, or by a holder.
    ///
    /// # Panics
    /// At 2^31 holds.
    #[inline]
    pub fn pin(&self) {
        let before = self.0.fetch_add(1, Relaxed);
        if before >= MOST {
            self.0.fetch_sub(1, Relaxed);
            panic!("an entry of an evictable cache is pinned {before} times: guards are forgotten");
        }
    }

    /// Gives a hold up; true if it was the last: the caller frees the entry.
    #[inline]
    #[must_use]
    pub fn unpin(&self) -> bool {
        if self.0.fetch_sub(1, Release) != 1 {
            return false;
        }
        fence(Acquire);
        true
    }

    /// Whether one holds the entry alone, which under the shard's lock, for an entry in the cache, is the cache.
    #[inline]
    pub fn is_held_once(&self) -> bool {
        self.0.load(Acquire) == 1
    }
}
