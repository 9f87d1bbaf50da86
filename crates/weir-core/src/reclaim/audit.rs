//! What an audit counts.

/// What an audit counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Pages of slabs.
    pub slab_pages: usize,
    /// Pages of large runs, in use or in buckets.
    pub run_pages: usize,
    /// Large runs in use.
    pub runs: usize,
    /// Large runs in per-CPU buckets.
    pub cpu_runs: usize,
    /// Free pages that are backed.
    pub idle_pages: usize,
    /// Free pages that are not.
    pub reported_pages: usize,
    /// Pages of address space that belong to no zone: another mapping was in the way.
    pub hole_pages: usize,
    /// Objects in use.
    pub live_objects: usize,
    /// Objects in depots.
    pub depot_objects: usize,
    /// Objects in per-CPU buckets.
    pub cpu_objects: usize,
    /// Blocks mapped on their own.
    pub mapped: usize,
}
