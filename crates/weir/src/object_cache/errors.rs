//! Why a cache was not made or changed, or handed out no object.

use core::fmt;
use weir_core::base::units::PAGE;
use weir_core::caches::geometry::MAX_OBJECT;
use weir_core::caches::user_cache::{LimitError, MakeError};

use crate::cache_error::CacheError;

impl CacheError {
    pub(super) fn of_making(why: MakeError, size: usize, align: usize) -> Self {
        match why {
            MakeError::Size => Self::ObjectSize { size, max: MAX_OBJECT },
            MakeError::Align => Self::Alignment { align, max: PAGE },
            MakeError::NoMemory => Self::OutOfMemory,
        }
    }

    pub(super) fn of_setting(why: LimitError) -> Self {
        match why {
            LimitError::Uncounted => Self::NotLimited,
            LimitError::NoMemory => Self::OutOfMemory,
        }
    }
}

/// The cache had no object for this value: there is no memory, or its limit is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AllocError<T>(pub T);

impl<T> AllocError<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for AllocError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllocError").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for AllocError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for an object, or the cache's limit is reached")
    }
}

impl<T> core::error::Error for AllocError<T> {}
