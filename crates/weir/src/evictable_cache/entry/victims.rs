//! Entries on their way out of a cache.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::header::{Content, Header};
use super::hold::{Hold, free};
use crate::evictable_cache::api::stats::RemovalCause;
use crate::evictable_cache::parts::Part;
use crate::evictable_cache::shared::Shared;

/// Entries that are taken out of a shard at a time.
const BATCH: usize = u16::BITS as usize;

/// Entries out of the cache, in which the cache's own hold is still to be given up. No lock is held when that is done.
///
/// An entry that the cache alone holds cannot be held anew once it is out of the index. So it is freed without a look at its
/// count. What is removed or replaced may be held, and is counted until it is freed then.
pub struct Victims<'a, C: Content> {
    shared: &'a Shared<C>,
    cause: RemovalCause,
    entries: [Option<NonNull<Header>>; BATCH],
    /// Those that were held besides, a bit each.
    held: u16,
    count: usize,
    weight: usize,
}

impl<'a, C: Content> Victims<'a, C> {
    /// None yet.
    #[inline]
    pub fn new(shared: &'a Shared<C>, cause: RemovalCause) -> Self {
        Self { shared, cause, entries: [None; BATCH], held: 0, count: 0, weight: 0 }
    }

    /// Why they left.
    pub fn cause(&self) -> RemovalCause {
        self.cause
    }

    /// Adds one that left the index and the policy, under the lock of its shard; what it weighs.
    pub fn push(&mut self, entry: NonNull<Header>) -> usize {
        // SAFETY: the cache's hold is this list's now.
        let header = unsafe { entry.as_ref() };
        if !header.pins.is_held_once() {
            self.held |= 1 << self.count;
            self.shared.outside.fetch_add(1, Relaxed);
        }
        self.shared.zoned.count_out(header);
        let weight = header.weight();
        self.weight += weight;
        self.entries[self.count] = Some(entry);
        self.count += 1;
        weight
    }

    /// Bytes that they count.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Bytes of a part that become free as they are dropped: what is held besides stays.
    pub fn freed(&self, part: Part) -> usize {
        let entries = self.entries[..self.count].iter().flatten().enumerate();
        let dropped = entries.filter(|&(at, _)| self.held >> at & 1 == 0);
        // SAFETY: none is freed before it is taken out of this list.
        let headers = dropped.map(|(_, entry)| unsafe { entry.as_ref() });
        headers.filter(|header| self.shared.zoned.is_of(header, part)).map(Header::weight).sum()
    }

    /// The number of them.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no more fit.
    pub fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// Tells the listener of each, and gives the cache's hold up.
    #[inline]
    pub fn tell_and_drop(mut self) {
        while let Some(leaving) = self.next() {
            // SAFETY: it is not freed before `leaving` is dropped, and has key and value until then.
            let (key, value) = unsafe { (C::key(leaving.entry), C::value(leaving.entry)) };
            self.shared.tell(key, value, self.cause);
        }
    }

    fn next(&mut self) -> Option<Leaving<'a, C>> {
        let mut entries = self.entries[..self.count].iter_mut().enumerate();
        let (at, entry) = entries.find_map(|(at, entry)| Some((at, entry.take()?)))?;
        Some(Leaving { shared: self.shared, entry, is_held_once: self.held >> at & 1 == 0 })
    }
}

impl<C: Content> Drop for Victims<'_, C> {
    /// Where a listener or a drop panics, the others are dropped all the same.
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

/// An entry that left the cache; when this is dropped the cache's hold is given up.
struct Leaving<'a, C: Content> {
    shared: &'a Shared<C>,
    entry: NonNull<Header>,
    is_held_once: bool,
}

impl<C: Content> Drop for Leaving<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if self.is_held_once {
            // SAFETY: under the lock, when it had left the index, only the cache held it.
            unsafe { free(self.shared, self.entry, true) }
        } else {
            // SAFETY: the cache's hold, which it gave up, of an entry with key and value.
            drop(unsafe { Hold::new(self.shared, self.entry) });
        }
    }
}
