//! Where evictable caches meet the rest of Weir: when they may grow, and how pressure reaches them.

use core::ptr::NonNull;

use weir_core::base::zone_class::ZoneClass;
use weir_linux::platform::other_malloc;
use weir_linux::process::callbacks::{self, CallbackSpec, Class, ScanReason, Thread};
use weir_linux::process::heap::HEAP;

use crate::heap;

/// What reclaim calls.
pub trait Shrink: Sync {
    /// Bytes that could go.
    fn count(&self) -> usize;
    /// Frees at least so many bytes, if there are; returns how many went. The cache does not grow again until
    /// [`Shrink::relieved`]. Only with `may_write` are dirty entries written back for it.
    fn scan(&self, bytes: usize, may_write: bool) -> usize;
    /// Whether what goes lies where the program allocates, and not in blocks of the cache's.
    fn is_of_program(&self) -> bool {
        false
    }
    /// The pressure is over.
    fn relieved(&self);
}

/// A cache as the registry calls it.
#[derive(Debug)]
struct Registered<S>(NonNull<S>);

// SAFETY: a shared reference to the cache, which is `Sync`, is all that is used of it.
unsafe impl<S: Sync> Send for Registered<S> {}
// SAFETY: shared references to this give shared references to the cache, which is `Sync`.
unsafe impl<S: Sync> Sync for Registered<S> {}

impl<S: Shrink> Registered<S> {
    fn cache(&self) -> &S {
        // SAFETY: `register` has the caller's promise that the cache is there until the registration is ended, which waits
        // for a call that is under way.
        unsafe { self.0.as_ref() }
    }
}

impl<S: Shrink> callbacks::Shrink for Registered<S> {
    fn count(&self) -> usize {
        self.cache().count()
    }
    fn scan(&self, bytes: usize, reason: ScanReason) -> usize {
        let before = self.cache().count();
        let freed = self.cache().scan(bytes, reason > ScanReason::Mild);
        if self.cache().is_of_program() {
            other_malloc::evict(freed);
        }
        // All that is left is pinned or dirty, and no write-back made any of it clean: the batches of this run that are
        // left would search in vain.
        if freed == 0 && self.cache().count() <= before { callbacks::STOP } else { freed }
    }
    fn relieved(&self) {
        self.cache().relieved();
    }
}

/// A cache's place in the registry.
#[derive(Debug)]
pub struct Registration(callbacks::Registration);

impl Registration {
    /// Ends it, and waits for a call that is under way.
    pub fn end(self) {
        self.0.unregister();
    }
}

/// Makes a cache that lies in zones of class `zone` known to reclaim. `None`: there is no memory or no thread for that.
///
/// # Safety
/// The cache stays where it is until the registration is ended.
pub unsafe fn register<S: Shrink + 'static>(cache: NonNull<S>, name: &[u8], zone: ZoneClass) -> Option<Registration> {
    heap::note_program_allocator();
    let spec = CallbackSpec { name, class: Class::Cache, zone, ..CallbackSpec::default() };
    let registered = callbacks::register_shrink(&spec, Registered(cache), Thread::Shared);
    registered.ok().map(Registration)
}

/// Whether a cache may take so many bytes more: there was no pressure since the last relief, and memory stays above the
/// high watermark.
pub fn may_grow(bytes: usize) -> bool {
    HEAP.may_grow(bytes)
}

/// Write-backs lag behind what reclaim wants of a class of zones: caches do not grow until the balancer has seen to it.
pub fn set_congested(zone: ZoneClass) {
    HEAP.set_congested(zone);
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::callbacks::{STOP, ScanReason, Shrink as _};
    use super::{NonNull, Registered, Shrink};

    /// What a scan does, and what was called.
    #[derive(Default)]
    struct Cache {
        freed: usize,
        cleaned: usize,
        clean: AtomicUsize,
    }

    impl Shrink for Cache {
        fn count(&self) -> usize {
            self.clean.load(Relaxed)
        }
        fn scan(&self, _: usize, _: bool) -> usize {
            self.clean.fetch_add(self.cleaned, Relaxed);
            self.freed
        }
        fn relieved(&self) {}
    }

    #[test]
    fn a_scan_stops_the_run_where_nothing_can_go_and_nothing_became_clean() {
        let scan = |cache: Cache| Registered(NonNull::from(&cache)).scan(1, ScanReason::Mild);
        assert_eq!(scan(Cache::default()), STOP);
        assert_eq!(scan(Cache { cleaned: 1, ..Cache::default() }), 0);
        assert_eq!(scan(Cache { freed: 1, ..Cache::default() }), 1);
    }
}
