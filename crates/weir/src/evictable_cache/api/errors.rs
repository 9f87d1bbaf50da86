//! Why a value was not taken.

use core::fmt;

/// Why a cache did not take a value. A load ([`EvictableCache::get_or_insert_with`](crate::EvictableCache::get_or_insert_with))
/// gives its value all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The entry is larger than the whole cache may be now, or, in a zone, than the largest run of pages.
    TooLarge {
        /// The entry's weight, bytes.
        weight: usize,
        /// The weight that the cache may hold now, bytes.
        target: usize,
    },
    /// Everything that would have to go for the entry is pinned, or goes for the insertions of other threads just now.
    Full,
    /// There is no memory for the entry, and none could be had by evictions.
    OutOfMemory,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { weight, target } => {
                write!(f, "an entry of {weight} bytes: the cache may hold {target} now")
            }
            Self::Full => {
                f.write_str("all that would have to go for the entry is pinned, or goes for other insertions")
            }
            Self::OutOfMemory => f.write_str("no memory for an entry of the cache"),
        }
    }
}

impl core::error::Error for Refusal {}

/// A cache did not take a value; here it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InsertError<V> {
    /// Why.
    pub refusal: Refusal,
    /// The value.
    pub value: V,
}

impl<V> InsertError<V> {
    /// The value.
    pub fn into_value(self) -> V {
        self.value
    }
}

impl<V> fmt::Debug for InsertError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsertError").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for InsertError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl<V> core::error::Error for InsertError<V> {}
