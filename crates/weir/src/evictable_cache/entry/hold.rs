//! Holds of entries: who has one keeps the entry from being freed.
//!
//! In a forked child an entry may lie in a zone of the parent's ([`Place::is_foreign`]). Its header counts the parent's holds
//! alone: a hold that the child has a copy of counts nothing, and neither its clone nor its end touches the entry.

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::header::{Content, Header};
use super::place::Place;
use crate::evictable_cache::shared::Shared;

/// A hold of an entry, which is freed when the last hold is dropped.
pub struct Hold<'a, C: Content> {
    shared: &'a Shared<C>,
    entry: NonNull<Header>,
}

// SAFETY: a hold gives out shared references, and may drop key and value, on whichever thread has it.
unsafe impl<C: Content<Key: Send + Sync, Value: Send + Sync>> Send for Hold<'_, C> {}
// SAFETY: a shared hold gives out shared references, and may be cloned, so that another thread drops key and value.
unsafe impl<C: Content<Key: Send + Sync, Value: Send + Sync>> Sync for Hold<'_, C> {}

impl<'a, C: Content> Hold<'a, C> {
    /// A hold that was counted.
    ///
    /// # Safety
    /// The entry is one of the cache's, has key and value, and the caller gives up one of its holds.
    #[inline]
    pub unsafe fn new(shared: &'a Shared<C>, entry: NonNull<Header>) -> Self {
        Self { shared, entry }
    }

    /// Whether the entry is one of this cache's.
    pub fn is_of(&self, shared: &Shared<C>) -> bool {
        core::ptr::eq(self.shared, shared)
    }

    /// Gives the hold up without ending it: [`Hold::new`] takes it up again.
    pub fn into_entry(self) -> NonNull<Header> {
        ManuallyDrop::new(self).entry
    }

    /// The entry's address.
    pub fn entry(&self) -> NonNull<Header> {
        self.entry
    }

    /// Whether the entry is the parent's, in a forked child.
    #[inline]
    fn is_foreign(&self) -> bool {
        self.shared.place.is_foreign(self.entry.cast())
    }

    /// The entry's header.
    pub fn header(&self) -> &Header {
        // SAFETY: an entry is valid while it is held.
        unsafe { self.entry.as_ref() }
    }

    /// The entry's key.
    #[inline]
    pub fn key(&self) -> &C::Key {
        // SAFETY: an entry of the cache has its key until it is freed, which the hold delays.
        unsafe { C::key(self.entry) }
    }

    /// The entry's value.
    #[inline]
    pub fn value(&self) -> &C::Value {
        // SAFETY: an entry of the cache has its value until it is freed, which the hold delays.
        unsafe { C::value(self.entry) }
    }
}

impl<C: Content> Clone for Hold<'_, C> {
    fn clone(&self) -> Self {
        if !self.is_foreign() {
            self.header().pins.pin();
        }
        Self { shared: self.shared, entry: self.entry }
    }
}

impl<C: Content> Drop for Hold<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_foreign() && self.header().pins.unpin() {
            let _gone = Gone(self.shared);
            // SAFETY: the last hold is gone, and the cache has none: nothing refers to the entry.
            unsafe { free(self.shared, self.entry, true) }
        }
    }
}

/// Counts an entry out that was counted when it left the cache, as it could be held: also where its `Drop` panics.
struct Gone<'a, C: Content>(&'a Shared<C>);

impl<C: Content> Drop for Gone<'_, C> {
    fn drop(&mut self) {
        self.0.outside.fetch_sub(1, Relaxed);
    }
}

/// Drops what an entry has, and frees its block. What is the parent's, in a forked child, is left to the parent.
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
    if shared.place.is_foreign(entry.cast()) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let place = if entry.as_ref().is_spare() { Place::Program } else { shared.place };
        let _block = Block(place, entry, C::layout(entry));
        C::drop_content(entry, has_value);
    }
}
