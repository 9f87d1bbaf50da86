//! Retained values that threads drop just now, and objects that they move, by their caches.
//!
//! The end of a cache waits until none of its values is being dropped or moved. A value may own the last handle of its own cache,
//! and so may `relocate`: the end would wait for its own thread. Such a cache stays, as what refers to itself does in Rust.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use weir_linux::arch::thread::thread_pointer;

/// A call that is running. A thread writes and reads its own alone, so no order is needed.
struct Place {
    /// Its thread; 0: the place is free.
    thread: AtomicUsize,
    /// The closures of its cache.
    closures: AtomicPtr<u8>,
}

/// Far more than threads that drop or move at once: Weir's own, and those that trim the heap or end a cache. A call for which no
/// place is free is not noted.
static PLACES: [Place; 32] =
    [const { Place { thread: AtomicUsize::new(0), closures: AtomicPtr::new(null_mut()) } }; 32];

/// Drops or moves a value of the cache that has these closures, by `call`, which does not unwind.
pub(super) fn noted<R>(closures: NonNull<u8>, call: impl FnOnce() -> R) -> R {
    let me = thread_pointer();
    let place = PLACES.iter().find(|place| place.thread.compare_exchange(0, me, Relaxed, Relaxed).is_ok());
    if let Some(place) = place {
        place.closures.store(closures.as_ptr(), Relaxed);
    }
    let result = call();
    if let Some(place) = place {
        place.thread.store(0, Relaxed);
    }
    result
}

/// Whether the calling thread drops or moves a value of the cache that has these closures.
pub(super) fn is_inside(closures: NonNull<u8>) -> bool {
    let me = thread_pointer();
    PLACES.iter().any(|place| place.thread.load(Relaxed) == me && place.closures.load(Relaxed) == closures.as_ptr())
}
