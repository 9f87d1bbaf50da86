//! Holds of entries, and entries on their way out.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::header::{Content, Header};
use super::shared::Shared;
use super::stats::Cause;

/// A hold of an entry, which is freed when the last hold is dropped.
pub struct Hold<'a, C: Content> {
    pub shared: &'a Shared<C>,
    pub entry: NonNull<Header>,
}

impl<C: Content> Hold<'_, C> {
    /// The entry's header.
    pub fn header(&self) -> &Header {
        // SAFETY: an entry is valid while it is held.
        unsafe { self.entry.as_ref() }
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> &C::Key {
        // SAFETY: an entry of the cache has its key until it is freed, which the hold delays.
        unsafe { C::key(self.entry) }
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> &C::Value {
        // SAFETY: an entry of the cache has its value until it is freed, which the hold delays.
        unsafe { C::value(self.entry) }
    }
}

impl<C: Content> Clone for Hold<'_, C> {
    fn clone(&self) -> Self {
        self.header().pins.pin();
        Self { shared: self.shared, entry: self.entry }
    }
}

impl<C: Content> Drop for Hold<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if self.header().pins.unpin() {
            // SAFETY: the last hold is gone, and the cache has none: nothing refers to the entry.
            unsafe { free(self.shared, self.entry, true) }
        }
    }
}

/// Drops what an entry has, and frees its block.
///
/// # Safety
/// The caller is its only owner; it has its key, and its value as it is said.
pub unsafe fn free<C: Content>(shared: &Shared<C>, entry: NonNull<Header>, has_value: bool) {
    /// Frees the block also where a drop panics.
    struct Block<'a, C: Content>(&'a Shared<C>, NonNull<Header>, Layout);
    impl<C: Content> Drop for Block<'_, C> {
        fn drop(&mut self) {
            self.0.blocks.fetch_sub(1, Relaxed);
            // SAFETY: the block is of this layout, and what it had is dropped.
            unsafe { self.0.place.free(self.1.cast(), self.2) }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let _block = Block(shared, entry, C::layout(entry));
        if has_value {
            C::drop_value(entry);
        }
        C::drop_key(entry);
    }
}

/// Entries that are taken out of a shard at a time.
const BATCH: usize = 16;

/// Entries out of the cache, in which the cache's own hold is still to be given up. No lock is held when they are.
pub struct Victims<'a, C: Content> {
    shared: &'a Shared<C>,
    cause: Cause,
    entries: [Option<NonNull<Header>>; BATCH],
    len: usize,
    weight: usize,
}

impl<'a, C: Content> Victims<'a, C> {
    /// None yet.
    pub fn new(shared: &'a Shared<C>, cause: Cause) -> Self {
        Self { shared, cause, entries: [None; BATCH], len: 0, weight: 0 }
    }

    /// Adds one that left the index and the policy, under the lock of its shard.
    pub fn push(&mut self, entry: NonNull<Header>) {
        // SAFETY: the cache's hold is this list's now.
        let header = unsafe { entry.as_ref() };
        header.set_out(true);
        self.weight += header.weight;
        self.entries[self.len] = Some(entry);
        self.len += 1;
    }

    /// Bytes that they count.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The number of them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no more fit.
    pub fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Tells the listener of each, and gives the cache's hold up.
    pub fn tell_and_drop(mut self) {
        while let Some(hold) = self.next() {
            self.shared.tell(hold.key(), hold.value(), self.cause);
        }
    }

    fn next(&mut self) -> Option<Hold<'a, C>> {
        let entry = self.entries[..self.len].iter_mut().find_map(Option::take)?;
        Some(Hold { shared: self.shared, entry })
    }
}

impl<C: Content> Drop for Victims<'_, C> {
    /// Where a listener or a drop panics, the others are dropped all the same.
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}
