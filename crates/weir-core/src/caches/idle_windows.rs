//! For how many windows each cache has been idle.

use super::geometry::BUCKETED;

/// What the last window's end saw of each cache with buckets: for telling idle ones.
pub(crate) struct Idle {
    /// Frees and visits so far.
    pub(super) seen: [u64; BUCKETED],
    pub(super) windows: [u32; BUCKETED],
    pub(super) ended: u64,
}

impl Idle {
    pub(crate) const fn new() -> Self {
        Self { seen: [0; BUCKETED], windows: [0; BUCKETED], ended: 0 }
    }
}
