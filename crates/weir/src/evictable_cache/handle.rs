//! Entries that are handed out to be written back: a batch of them, and the handle of each.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};
use weir_linux::process::evictable_caches as process;

use super::dirt::BATCH;
use super::header::{Content, Header};
use super::shared::Shared;

/// Entries handed out to be written back.
pub struct Batch<C: Content> {
    entries: [Option<Handle<C>>; BATCH],
}

impl<C: Content> Batch<C> {
    /// Of entries that the cache's callback was called with.
    ///
    /// # Safety
    /// The address is the cache's, and the entries were handed out by it, once.
    pub unsafe fn new(shared: NonNull<()>, entries: &[NonNull<Header>]) -> Self {
        let mut handles = [const { None }; BATCH];
        for (place, &entry) in handles.iter_mut().zip(entries) {
            *place = Some(Handle { shared: shared.cast(), entry });
        }
        Self { entries: handles }
    }

    /// The number that was handed out.
    pub fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }
}

impl<C: Content> Iterator for Batch<C> {
    type Item = Handle<C>;
    fn next(&mut self) -> Option<Handle<C>> {
        self.entries.iter_mut().find_map(Option::take)
    }
}

/// An entry that is being written back. Dropped without being completed, it has failed.
pub struct Handle<C: Content> {
    pub shared: NonNull<Shared<C>>,
    pub entry: NonNull<Header>,
}

// SAFETY: it holds an entry of a cache, whose keys and values may be used from any thread.
unsafe impl<C: Content> Send for Handle<C> {}
// SAFETY: a shared handle gives out shared references to key and value alone.
unsafe impl<C: Content> Sync for Handle<C> {}

impl<C: Content> Handle<C> {
    /// The entry's key.
    pub fn key(&self) -> &C::Key {
        // SAFETY: the handle holds the entry.
        unsafe { C::key(self.entry) }
    }

    /// The entry's value.
    pub fn value(&self) -> &C::Value {
        // SAFETY: the handle holds the entry.
        unsafe { C::value(self.entry) }
    }

    /// Ends the write-back.
    pub fn complete(self, is_written: bool) {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: a handle, which is forgotten.
        unsafe { Shared::complete(this.shared, this.entry, is_written) }
    }
}

impl<C: Content> Drop for Handle<C> {
    fn drop(&mut self) {
        // SAFETY: a handle, which was not completed.
        unsafe { Shared::complete(self.shared, self.entry, false) }
    }
}

/// A handle's part of the count of handles, given up when this is dropped: also where the `Drop` of a key or value panics.
struct CountedHandle(*const AtomicU32);

impl Drop for CountedHandle {
    fn drop(&mut self) {
        let fewer = |handles: u32| handles.checked_sub(1);
        // SAFETY: the handle is still counted, so its cache is there, unless this is a forked child, whose cache is not
        // waiting for it.
        let before = unsafe { &*self.0 }.fetch_update(Release, Relaxed, fewer);
        if before.is_ok() {
            process::wake(self.0);
        }
    }
}

impl<C: Content> Shared<C> {
    /// Ends a write-back, and gives up what the handle holds.
    ///
    /// The cache may be gone as soon as the count of handles is lowered, which is the last use of it here: its end waits
    /// for that.
    ///
    /// # Safety
    /// A handle is ended by this, once.
    unsafe fn complete(this: NonNull<Self>, entry: NonNull<Header>, is_written: bool) {
        // SAFETY: the cache lives as long as a handle is out.
        let shared = unsafe { this.as_ref() };
        let _counted = CountedHandle(&raw const shared.write_back.handles);
        shared.complete_in_shard(entry, is_written);
    }
}
