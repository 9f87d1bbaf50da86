//! What is counted of the block cache.

use serde::{Deserialize, Serialize};

/// The cache at one time; counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Most bytes; none: as memory allows.
    pub max_bytes: Option<u64>,
    /// Bytes held now.
    pub bytes: u64,
    /// Blocks held now.
    pub blocks: u64,
    /// Blocks that reads found.
    pub hits: u64,
    /// Blocks that reads had to fetch.
    pub misses: u64,
    /// Bytes written by clients and not yet written below: with `write-back` alone.
    pub dirty_bytes: u64,
    /// Blocks written below after their clients were answered.
    pub written_back: u64,
}
