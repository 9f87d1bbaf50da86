//! What is larger than a size class.

use super::Heap;
use crate::platform::Platform;

/// Runs of pages, and blocks mapped on their own.
pub(super) struct Large<'a, P: Platform> {
    pub(super) heap: &'a Heap<P>,
}

impl<P: Platform> Heap<P> {
    /// Runs of pages, and blocks mapped on their own.
    #[inline(always)]
    pub(super) fn large(&self) -> Large<'_, P> {
        Large { heap: self }
    }
}
