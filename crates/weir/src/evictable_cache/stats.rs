//! Figures of a cache, and why entries leave it.

/// Why an entry left a cache, or never came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Another one needed room.
    Room,
    /// Memory is short.
    Pressure,
    /// The program removed it: remove, discard, clear, or the end of the cache.
    Removed,
    /// Another value was inserted under its key.
    Replaced,
    /// Its time was over.
    Expired,
    /// It was not taken ([`Refusal`](crate::Refusal)).
    Rejected,
}

/// Figures of an [`EvictableCache`](crate::EvictableCache) or a [`ByteCache`](crate::ByteCache). Bytes are as the cache
/// weighs its entries. Counts are since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictableStats {
    /// Look-ups that found their key.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Values put in.
    pub insertions: u64,
    /// Entries evicted because another needed room.
    pub evicted_for_room: u64,
    /// Entries evicted because memory was short.
    pub evicted_for_pressure: u64,
    /// Entries that the program removed.
    pub removed: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries whose key got another value.
    pub replaced: u64,
    /// Values that were not taken.
    pub rejected: u64,
    /// Write-backs that were completed.
    pub write_backs: u64,
    /// Write-backs that failed.
    pub write_back_errors: u64,
    /// What the entries weigh, and what weighs a value that is being put in.
    pub bytes: usize,
    /// The number of entries.
    pub entries: usize,
    /// What the cache may hold now.
    pub target_bytes: usize,
    /// What it may hold at most.
    pub max_bytes: usize,
    /// The weight of what is dirty and not being written back.
    pub dirty_bytes: usize,
    /// The number of dirty entries, those that are being written back and are dirty again among them.
    pub dirty_entries: usize,
    /// Write-backs under way.
    pub writing: usize,
    /// Entries that guards pin.
    pub pinned: usize,
    /// Bytes of the cache's own, beside its entries.
    pub metadata_bytes: usize,
    /// Evictions were short of clean entries, and write-backs are to come or under way.
    pub is_congested: bool,
}
