//! The ranks of all locks: the one table. Each kind of lock has a rank of its own. A thread takes them in ascending order only,
//! and one of each at a time; [`super::lock`] checks that in debug builds. `fork` takes all of them in this order.
//!
//! No system call and no fence is made under [`DEPOT`] to [`PROFILE`]: an allocation may want any of those. Under the ranks
//! before them system calls are made, but an allocation waits for none of them but [`GROWTH`], whose turn is a system call.

macro_rules! ranks {
    ($($(#[doc = $what:literal])+ $name:ident = $rank:literal;)*) => {
        $($(#[doc = $what])+ pub const $name: u32 = $rank;)*
        /// How many there are.
        pub const COUNT: u32 = [$($rank),*].len() as u32;
        /// Their names, by rank, for messages.
        const NAMES: [&str; COUNT as usize] = [$(stringify!($name)),*];
    };
}

ranks! {
    /// The list of evictable caches that a fork is to find whole.
    EVICTABLE_CACHES = 0;
    /// A shard of an evictable cache. Keys are compared under it, which may allocate.
    EVICTABLE_SHARD = 1;
    /// The duel of an evictable cache's settings.
    EVICTABLE_DUEL = 2;
    /// A node's batch: one at a time is isolated and released.
    BATCH = 3;
    /// The drain of CPUs' buckets.
    DRAIN = 4;
    /// A window's turn to grow.
    GROWTH = 5;
    /// Buckets of a platform without restartable sections.
    BUCKETS = 6;
    /// Held while a cache gets a number, or a node's part.
    CACHE_TABLE = 7;
    /// Figures that the last window saw of each cache.
    CACHE_WINDOWS = 8;
    /// The list of a program's callbacks.
    CALLBACKS = 9;
    /// The list of page pools.
    PAGE_POOLS = 10;
    /// A page pool's idle runs.
    PAGE_POOL = 11;
    /// A cache's depot.
    DEPOT = 12;
    /// A cache's slabs.
    SLABS = 13;
    /// The memory of buckets.
    SHELLS = 14;
    /// The blocks mapped on their own.
    BLOCKS = 15;
    /// The refault meter's estimate.
    PATIENCE = 16;
    /// The list of a program's own zones.
    USER_ZONES = 17;
    /// A zone's free areas.
    ZONE = 18;
    /// The heap profile's tables.
    PROFILE = 19;
}

/// The name of a rank, for messages.
pub fn name(rank: u32) -> &'static str {
    NAMES.get(rank as usize).copied().unwrap_or("?")
}
