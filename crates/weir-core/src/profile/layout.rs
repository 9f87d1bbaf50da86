//! The table of a process's heap profile, as another process reads it.
//!
//! It is a [`Header`] and behind it [`STACKS`] entries, a [`Stack`] each. [`crate::telemetry::stats::Stats::profile`] says
//! where it is in the process's memory. An entry is found by its stack's hash and is never given back. The writers hold a
//! lock; the reader, who does not, takes an entry into account once its depth, which is stored last, is not 0. Each
//! counter is whole; two of them may be of two instants.
//!
//! Counters are estimates of all allocations, not counts of samples. A sample of `s` bytes, taken with mean `m`, stands for
//! `1 / (1 - exp(-(s + 1) / m))` allocations of its size. That is the reciprocal of its chance to be sampled.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the table (`"weirprof"`).
pub const MAGIC: u64 = u64::from_le_bytes(*b"weirprof");
/// Version of the layout; a reader refuses any other.
pub const VERSION: u32 = 1;
/// Return addresses of a stack that are kept, from the caller of the allocation outwards. Readers of pprof show no more on a
/// page, and gperftools keeps half as many.
pub const FRAMES: usize = 64;
/// Call stacks that are told apart; those beyond count in [`Header::lost_stacks`]. A sampled program of a million lines
/// has some thousands.
pub const STACKS: usize = 1 << 14;

/// Sampled blocks that are kept track of, a power of two: three quarters of them are used at most. At the recommended mean of
/// 512 KiB that is 48 GiB of live memory.
pub(super) const SLOTS: usize = 1 << 17;
/// Counts of the filter of blocks: where 1,000 sampled blocks live, 3 % of the other frees of runs take the lock. 128 KiB.
pub(super) const COUNTS: usize = 1 << 15;

/// Header of the table.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Entries in use. An entry's place is its hash's, so all of them are among this many from the first on only if the table is
    /// full.
    pub stacks: AtomicU32,
    /// Mean of the bytes between two samples; 0: sampling is off now.
    pub mean_bytes: AtomicU64,
    /// When sampling was first switched on, ns since 1970.
    pub began_ns: AtomicU64,
    /// Samples taken.
    pub samples: AtomicU64,
    /// Samples dropped, as there was no place for their stack.
    pub lost_stacks: AtomicU64,
    /// Samples that count as allocated but not as live, as there was no place to remember their block.
    pub lost_blocks: AtomicU64,
}

/// A call stack, and what it allocated.
#[repr(C)]
pub struct Stack {
    /// Hash of the frames; 0: the entry is free.
    pub hash: AtomicU64,
    /// Frames in [`Stack::frames`]; 0: the entry is free, or being written.
    pub depth: AtomicU64,
    /// Allocations since the profile began, estimated.
    pub allocated_objects: AtomicU64,
    /// Their bytes, as asked for.
    pub allocated_bytes: AtomicU64,
    /// Allocations that are not freed yet, estimated.
    pub live_objects: AtomicU64,
    /// Their bytes, as asked for.
    pub live_bytes: AtomicU64,
    /// Return addresses, the innermost first.
    pub frames: [AtomicU64; FRAMES],
}

/// The whole table.
#[repr(C)]
pub struct Profile {
    /// Header of the table.
    pub header: Header,
    /// The stacks, each at a place that its hash leads to.
    pub stacks: [Stack; STACKS],
}

/// Bytes of it: what a reader copies. Pages that were never written take no memory.
pub const PROFILE_BYTES: usize = size_of::<Profile>();
