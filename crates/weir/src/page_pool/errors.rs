//! Why there is no pool.

use core::fmt;

/// Why a pool was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// There is no memory for its state.
    OutOfMemory,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for the page pool")
    }
}

impl core::error::Error for PoolError {}
