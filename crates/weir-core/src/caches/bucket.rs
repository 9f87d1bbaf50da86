//! A bucket of a depot.

use super::geometry::MAX_BATCH;

/// A bucket: `len` pointers.
#[repr(C)]
pub(crate) struct Bucket {
    pub(crate) next: *mut Bucket,
    pub(super) len: usize,
    pub(super) slots: [*mut u8; MAX_BATCH],
}
