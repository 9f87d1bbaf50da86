//! Figures of a cache, and why entries leave it.

/// Why an entry left a cache, or never came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// Another entry needed room.
    Room,
    /// Memory is short.
    Pressure,
    /// The program removed it: `remove`, `retain`, `clear`, or the end of the cache.
    Removed,
    /// Another value was inserted under its key. Also where that was refused: the entry leaves all the same, as it is out of date,
    /// and the refused value is told of as [`RemovalCause::Rejected`].
    Replaced,
    /// The entry's time was over. What goes for room, by pressure or by `clear` has that cause, without a look at its time.
    Expired,
    /// The value was not taken ([`Refusal`](crate::Refusal)), or is not kept: for its weight ([`Favour`](crate::Favour)), or as its
    /// key was removed or got another value while it was computed.
    Rejected,
}

/// Figures of an [`EvictableCache`](crate::EvictableCache) or a [`ByteCache`](crate::ByteCache). Bytes are as the cache
/// weighs its entries. Counts are since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictableStats {
    /// Look-ups that found their key. A load is one, and so is an update (`upsert_with`): each call counts once, here or below.
    pub hits: u64,
    /// Look-ups that did not. A load that waits for another's value is among them: 8 callers of one load are 8 misses.
    pub misses: u64,
    /// Values put in.
    pub insertions: u64,
    /// Entries evicted because another needed room.
    pub evicted_for_room: u64,
    /// Entries evicted because memory was short.
    pub evicted_for_pressure: u64,
    /// Entries that the program removed.
    pub removed: u64,
    /// Entries whose time was over, as they were found. What went for room, by pressure or by `clear` is counted as that.
    pub expired: u64,
    /// Entries of keys that got another value, or were to get one that was refused.
    pub replaced: u64,
    /// Values that were not taken, or are not kept.
    pub rejected: u64,
    /// The weight of the entries, and of values that are being put in.
    pub bytes: usize,
    /// The number of entries.
    pub entries: usize,
    /// The weight that the cache may hold now.
    pub target_bytes: usize,
    /// The weight that the cache may hold at most; `usize::MAX` without a bound.
    pub max_bytes: usize,
    /// Entries that guards pin.
    pub pinned: usize,
    /// Bytes of the cache's own, beside its entries.
    pub metadata_bytes: usize,
}
