//! Where caches meet reclaim: they are registered as what can be made smaller.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use weir_linux::platform::other_malloc;
use weir_linux::process::callbacks::{self, CallbackSpec, Class, Registration, STOP, ScanReason, Shrink, Thread};

use super::entry::header::Content;
use super::shared::Shared;
use crate::heap;

/// A cache as the registry calls it.
struct Registered<C: Content>(NonNull<Shared<C>>);

// SAFETY: a shared reference to the cache, which is `Sync`, is all that is used of it.
unsafe impl<C: Content> Send for Registered<C> {}
// SAFETY: shared references to this give shared references to the cache, which is `Sync`.
unsafe impl<C: Content> Sync for Registered<C> {}

impl<C: Content> Registered<C> {
    fn cache(&self) -> &Shared<C> {
        // SAFETY: `register` has the caller's promise that the cache is there until the registration is ended, which waits
        // for a call that is under way.
        unsafe { self.0.as_ref() }
    }
}

impl<C: Content> Shrink for Registered<C> {
    fn count(&self) -> usize {
        let room = &self.cache().room;
        room.bytes.load(Relaxed).saturating_sub(room.least())
    }

    fn scan(&self, bytes: usize, _: ScanReason) -> usize {
        let freed = self.cache().evict(bytes);
        // Entries that a weigher weighs are more than their blocks: what goes lies where the program allocates.
        if self.cache().weigher.is_some() {
            other_malloc::evict(freed);
        }
        // All that is left is pinned: the batches of this run that are left would search in vain.
        if freed == 0 { STOP } else { freed }
    }

    fn relieved(&self) {
        self.cache().relieved();
    }
}

/// Makes a cache known to reclaim. `None`: there is no memory or no thread for that.
///
/// # Safety
/// The cache stays where it is until the registration is ended.
pub unsafe fn register<C: Content>(cache: NonNull<Shared<C>>) -> Option<Registration> {
    heap::note_program_allocator();
    // SAFETY: the caller's cache.
    let shared = unsafe { cache.as_ref() };
    let zone = shared.place.class();
    let spec = CallbackSpec { name: &shared.name, class: Class::Cache, zone, ..CallbackSpec::default() };
    callbacks::register_shrink(&spec, Registered(cache), Thread::Shared).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evictable_cache::api::byte_cache::ByteCache;

    #[test]
    fn a_scan_stops_the_run_where_nothing_can_go() {
        let cache = ByteCache::builder().build().unwrap();
        let registered = Registered(NonNull::from(&*cache.shared));
        let pinned = cache.insert(b"key", b"value").unwrap();
        assert_eq!(registered.scan(1, ScanReason::Mild), STOP);
        let weight = pinned.weight();
        drop(pinned);
        assert_eq!(registered.scan(1, ScanReason::Mild), weight);
        assert_eq!(registered.scan(1, ScanReason::Mild), STOP);
    }
}
