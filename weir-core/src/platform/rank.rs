//! The ranks of all locks: the one table. Each kind of lock has a rank of its own; a thread takes them in ascending order
//! only, one of each at a time ([`super::lock`] checks that in debug builds), and `fork` takes all of them in this order.
//!
//! No system call and no fence is made under [`DEPOT`] to [`ZONE`]: an allocation may want any of those. Under the ranks
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
    /// A node's batch: one at a time is isolated and released.
    BATCH = 0;
    /// The drain of CPUs' buckets.
    DRAIN = 1;
    /// A window's turn to grow.
    GROWTH = 2;
    /// Buckets of a platform without restartable sections.
    BUCKETS = 3;
    /// Held while a cache gets a number, or a node's part.
    CACHE_TABLE = 4;
    /// What the last window saw of each cache.
    CACHE_WINDOWS = 5;
    /// The list of a program's callbacks.
    CALLBACKS = 6;
    /// A cache's depot.
    DEPOT = 7;
    /// A cache's slabs.
    SLABS = 8;
    /// The memory of buckets.
    SHELLS = 9;
    /// The blocks mapped on their own.
    BLOCKS = 10;
    /// The refault meter's estimate.
    PATIENCE = 11;
    /// The list of a program's own zones.
    USER_ZONES = 12;
    /// A zone's free areas.
    ZONE = 13;
}

/// The name of a rank, for messages.
pub fn name(rank: u32) -> &'static str {
    NAMES.get(rank as usize).copied().unwrap_or("?")
}
