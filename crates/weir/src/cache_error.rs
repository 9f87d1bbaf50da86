//! Why a cache of either kind was not made.

use core::fmt;

/// Why a cache was not made, or a setting of it not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheError {
    /// Objects of this size are too large for a cache.
    ObjectSize {
        /// Bytes of an object.
        size: usize,
        /// The largest there can be.
        max: usize,
    },
    /// The alignment is not a power of two, or too large.
    Alignment {
        /// The alignment that was wanted, bytes.
        align: usize,
        /// The largest there can be.
        max: usize,
    },
    /// An evictable cache of more shards than there can be.
    Shards {
        /// The number that was wanted.
        shards: usize,
        /// The most there can be.
        max: usize,
    },
    /// An evictable cache without bound or weigher, of values that own memory which it cannot see.
    Unweighed {
        /// The type of its keys.
        key: &'static str,
        /// The type of its values.
        value: &'static str,
    },
    /// There is no memory for the cache's state, or for all of its reserve (which then stays what it was).
    OutOfMemory,
    /// The cache was made without a limit, so its objects are not counted, and it cannot have one later.
    NotLimited,
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ObjectSize { size, max } => write!(f, "objects of {size} bytes: a cache's objects have 1 to {max}"),
            Self::Alignment { align, max } => {
                write!(f, "alignment of {align} bytes: must be a power of two, 1 to {max}")
            }
            Self::Shards { shards, max } => write!(f, "{shards} shards: a cache has {max} at most"),
            Self::Unweighed { key, value } => write!(
                f,
                "a cache of {key} and {value}, which own memory that it cannot see: call weighed() where both implement \
                 weir::Weigh, or weigher(|key, value| bytes); max_bytes() without them bounds their entries' blocks alone"
            ),
            Self::OutOfMemory => f.write_str("no memory for the cache or its reserve"),
            Self::NotLimited => f.write_str("the cache was made without a limit, and cannot have one later"),
        }
    }
}

impl core::error::Error for CacheError {}
