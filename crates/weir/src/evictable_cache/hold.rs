//! Holds of entries, and entries on their way out.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::header::{Content, Header};
use super::place::Place;
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
            let _gone = Gone(self.shared);
            // SAFETY: the last hold is gone, and the cache has none: nothing refers to the entry.
            unsafe { free(self.shared, self.entry, true) }
        }
    }
}

/// An entry that was counted when it left the cache, as it could be held, is not any more: also where its `Drop` panics.
struct Gone<'a, C: Content>(&'a Shared<C>);

impl<C: Content> Drop for Gone<'_, C> {
    fn drop(&mut self) {
        self.0.outside.fetch_sub(1, Relaxed);
    }
}

/// Drops what an entry has, and frees its block.
///
/// # Safety
/// The caller is its only owner; it has its key, and its value as it is said.
pub unsafe fn free<C: Content>(shared: &Shared<C>, entry: NonNull<Header>, has_value: bool) {
    /// Frees the block also where a drop panics.
    struct Block(Place, NonNull<Header>, Layout);
    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: the block is of this layout, and what it had is dropped.
            unsafe { self.0.free(self.1.cast(), self.2) }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let place = if entry.as_ref().is_spare() { Place::Program } else { shared.place };
        let _block = Block(place, entry, C::layout(entry));
        /// Drops the key also where the drop of the value panics.
        struct Key<C: Content>(NonNull<Header>, PhantomData<C>);
        impl<C: Content> Drop for Key<C> {
            fn drop(&mut self) {
                // SAFETY: the entry has its key, which is not used afterwards.
                unsafe { C::drop_key(self.0) }
            }
        }
        let _key = Key::<C>(entry, PhantomData);
        if has_value {
            C::drop_value(entry);
        }
    }
}

/// Entries that are taken out of a shard at a time.
const BATCH: usize = 16;

/// Entries out of the cache, in which the cache's own hold is still to be given up. No lock is held when they are.
///
/// What is evicted is held by the cache alone, and cannot be held anew once it is out of the index: it is freed without a
/// look at its count. What is removed or replaced may be held, and is counted until it is freed.
pub struct Victims<'a, C: Content> {
    shared: &'a Shared<C>,
    cause: Cause,
    entries: [Option<NonNull<Header>>; BATCH],
    /// Of these, so many are freed.
    begin: usize,
    end: usize,
    weight: usize,
}

impl<'a, C: Content> Victims<'a, C> {
    /// None yet.
    #[inline]
    pub fn new(shared: &'a Shared<C>, cause: Cause) -> Self {
        Self { shared, cause, entries: [None; BATCH], begin: 0, end: 0, weight: 0 }
    }

    /// Why they left.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    fn are_held_once(&self) -> bool {
        matches!(self.cause, Cause::Room | Cause::Pressure)
    }

    /// Adds one that left the index and the policy, under the lock of its shard.
    pub fn push(&mut self, entry: NonNull<Header>) {
        // SAFETY: the cache's hold is this list's now.
        let header = unsafe { entry.as_ref() };
        self.shared.write_back.leave(header);
        if !self.are_held_once() {
            self.shared.outside.fetch_add(1, Relaxed);
        }
        self.weight += header.weight;
        self.entries[self.end] = Some(entry);
        self.end += 1;
    }

    /// Bytes that they count.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The number of them.
    pub fn len(&self) -> usize {
        self.end
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Whether no more fit.
    pub fn is_full(&self) -> bool {
        self.end == BATCH
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
        let entry = self.entries[self.begin..self.end].first_mut()?.take()?;
        self.begin += 1;
        Some(Leaving { shared: self.shared, entry, is_held_once: self.are_held_once() })
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
            // SAFETY: an eviction found under the lock that only the cache held it, and took it out of the index.
            unsafe { free(self.shared, self.entry, true) }
        } else {
            drop(Hold { shared: self.shared, entry: self.entry });
        }
    }
}
