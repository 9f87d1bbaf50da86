//! A callback that is registered, as its owner has it.

use core::ptr::NonNull;
use weir_core::evict::callback::{CallbackStats, Entry};

use crate::process::heap::HEAP;

/// A registered callback; [`Registration::unregister`] ends it.
#[derive(Debug)]
pub struct Registration(NonNull<Entry>);

// SAFETY: an `Entry` may be used from any thread, and what it disposes of is `Send`, as whoever registers demands.
unsafe impl Send for Registration {}
// SAFETY: only figures are read through a shared reference, which are atomic.
unsafe impl Sync for Registration {}

impl Registration {
    /// Unregisters the callback and drops it. Waits while it is called by another thread; inside the callback itself it
    /// returns at once, and the callback is dropped after its return.
    pub fn unregister(self) {
        // SAFETY: registered, as `from_raw` demands, and given up here.
        unsafe { HEAP.callbacks().unregister(HEAP.platform(), self.0) }
    }

    /// Its figures.
    pub fn stats(&self) -> CallbackStats {
        // SAFETY: the entry is there until it is unregistered, which takes the registration.
        unsafe { self.0.as_ref() }.stats()
    }

    /// For a language without owners: [`Registration::from_raw`] undoes it.
    pub fn into_raw(self) -> NonNull<Entry> {
        self.0
    }

    /// Undoes [`Registration::into_raw`].
    ///
    /// # Safety
    /// The entry is registered, may be disposed of on any thread, and there is one `Registration` of it at a time.
    pub unsafe fn from_raw(entry: NonNull<Entry>) -> Self {
        Self(entry)
    }
}
