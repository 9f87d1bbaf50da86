//! Blocks that are larger than a size class.

use super::Heap;
use super::view::view;
use crate::platform::Platform;

view! {
    /// Runs of pages, and blocks mapped on their own.
    pub(in crate::heap) struct Large;
    /// Runs of pages, and blocks mapped on their own.
    fn large;
}
