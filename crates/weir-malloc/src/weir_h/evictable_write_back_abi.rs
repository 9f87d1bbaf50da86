//! `weir.h`'s dirty entries of evictable caches: marked, written back, flushed.

use crate::errno::{EDEADLK, EINVAL, EIO, ENOENT, refuse};
use crate::weir_h::evictable_abi::{Cache, looked_at, named, pair};
use core::ffi::{c_int, c_void};
use weir::ByteCache;

/// `weir_evictable_mark_dirty`.
pub unsafe fn mark_dirty(cache: *mut Cache, entry: *mut c_void) -> c_int {
    // SAFETY: the caller's cache.
    let can_be = unsafe { named(cache) }.is_some_and(ByteCache::can_be_dirty);
    // SAFETY: the caller's cache, and an entry that it pins.
    let Some(found) = (unsafe { looked_at(cache, entry) }).filter(|_| can_be) else { return refuse(EINVAL) };
    if found.mark_dirty() { 0 } else { refuse(ENOENT) }
}

/// `weir_evictable_written`.
pub unsafe fn written(cache: *mut Cache, entry: *mut c_void, is_written: c_int) {
    // SAFETY: the caller's cache, and an entry that was handed to its callback.
    let Some((cache, entry)) = (unsafe { pair(cache, entry) }) else { return };
    // SAFETY: handed over by `hand_over`, and completed once.
    let handle = unsafe { cache.dirty_from_raw(entry) };
    if is_written == 0 { handle.failed() } else { handle.written() }
}

/// `weir_evictable_flush`.
pub unsafe fn flush(cache: *mut Cache) -> c_int {
    // SAFETY: the caller's cache.
    let Some(cache) = (unsafe { named(cache) }) else { return refuse(EINVAL) };
    if cache.is_in_write_back() {
        return refuse(EDEADLK);
    }
    if cache.flush().is_ok() { 0 } else { refuse(EIO) }
}
