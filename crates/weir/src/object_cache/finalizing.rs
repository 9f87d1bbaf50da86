//! Retained values that threads drop just now, by their caches.
//!
//! The end of a cache waits until none of its values is being dropped. A value may own the last handle of its own cache: the end would
//! wait for its own thread. Such a cache stays, as what refers to itself does in Rust.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use weir_linux::arch::thread::thread_pointer;

/// A drop that is running. A thread writes and reads its own alone, so no order is needed.
struct Place {
    /// Its thread; 0: the place is free.
    thread: AtomicUsize,
    /// The closures of the value's cache.
    closures: AtomicPtr<u8>,
}

/// Far more than threads that drop such values at once: Weir's own, and those that trim the heap or end a cache. A drop for which no
/// place is free is not noted.
static PLACES: [Place; 32] =
    [const { Place { thread: AtomicUsize::new(0), closures: AtomicPtr::new(null_mut()) } }; 32];

/// Drops a value of the cache that has these closures, by `drop`, which does not unwind.
pub(super) fn finalize(closures: NonNull<u8>, drop: impl FnOnce()) {
    let me = thread_pointer();
    let place = PLACES.iter().find(|place| place.thread.compare_exchange(0, me, Relaxed, Relaxed).is_ok());
    if let Some(place) = place {
        place.closures.store(closures.as_ptr(), Relaxed);
    }
    drop();
    if let Some(place) = place {
        place.thread.store(0, Relaxed);
    }
}

/// Whether the calling thread drops a value of the cache that has these closures.
pub(super) fn is_finalizing(closures: NonNull<u8>) -> bool {
    let me = thread_pointer();
    PLACES.iter().any(|place| place.thread.load(Relaxed) == me && place.closures.load(Relaxed) == closures.as_ptr())
}
