//! Where the memory is: the one definition of what every figure means, here, in the C library's functions, in `weir.h`
//! and in what `weir run` prints. All figures are bytes.
//!
//! | word | what it counts |
//! |---|---|
//! | **live** | objects, runs and blocks that the program holds, at their usable sizes |
//! | **idle** | free and resident, and can be released: free pages (also whole ones inside slabs), objects and runs in CPUs' buckets and depots, retained blocks |
//! | **fragmented** | free and resident, and cannot be released: free objects on pages that also hold an object in use (or in a bucket or depot), and what is left over of such pages |
//! | **merged** | as fragmented, and resident, but the kernel has no memory of its own behind it: it shares a page's ([`crate::merge`]) |
//! | **metadata** | resident and Weir's own: class maps, descriptors, pageblocks, CPUs' buckets, the memory of depots' buckets, tables |
//! | **untouched** | of *live*, and of objects in buckets and depots: bytes on pages that are not resident: the program never touched them, or they were swapped out |
//!
//! live + idle + fragmented + merged + metadata - untouched = what is resident of Weir ([`Usage::resident`]); without *merged* it
//! is what is charged for it. The rest of the process's resident set is not Weir's. It is code and data, stacks, other mappings,
//! and the program's own zones, of each of which `zone_usage` tells. The heap's own fixed tables are in the data segment.
//!
//! The figures are gathered on demand. The program goes on meanwhile, so that they are exact only while it allocates and frees
//! nothing. Else each is off by what moved between the first look and the last. A batch of up to 64 objects on its way between a
//! CPU's bucket and a slab counts as live. A block of more than 8 GiB is measured by samples.

use crate::base::units::Bytes;

/// Where the memory is: see the module. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Objects, runs and blocks that the program holds, at their usable sizes.
    pub live: usize,
    /// Free, resident, and can be released.
    pub idle: usize,
    /// Free, resident, and cannot be released: beside objects in use on the same pages.
    pub fragmented: usize,
    /// Counted as resident, free, beside objects in use, and without memory of its own: the kernel merged its page with others.
    pub merged: usize,
    /// Resident, and Weir's own.
    pub metadata: usize,
    /// Bytes that are live (or in a bucket) and not resident, as it was never touched or was swapped out.
    pub untouched: usize,
}

impl Usage {
    /// Resident bytes of Weir.
    pub fn resident(&self) -> usize {
        (self.live + self.idle + self.fragmented + self.merged + self.metadata).saturating_sub(self.untouched)
    }
}

/// Figures that counters alone say of a moment: O(caches * CPUs), no system call. `idle` and `fragmented` are as [`Usage`]
/// has them, but for whole free pages inside slabs that are in use, which count as fragmented here. What was handed
/// out once counts as resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Objects and blocks mapped on their own that the program holds.
    pub live: Bytes,
    /// See [`Usage::idle`].
    pub idle: Bytes,
    /// See [`Usage::fragmented`].
    pub fragmented: Bytes,
    /// See [`Usage::merged`].
    pub merged: Bytes,
    /// Of pages that zones handed out, to slabs and runs.
    pub pages: Bytes,
    /// Of pages that slabs have.
    pub slabs: Bytes,
    /// Of runs in CPUs' buckets.
    pub cached_runs: Bytes,
    /// Objects that are in no slab: handed out, or in a bucket.
    pub objects_out: usize,
    /// A lock was held that was not to be waited for: something is missing.
    pub is_partial: bool,
}

impl Figures {
    /// All that the program holds: [`Usage::live`].
    pub(crate) fn live(&self) -> Bytes {
        self.live + self.pages.saturating_sub(self.slabs + self.cached_runs)
    }
}

// What an audit counts.

/// Counts of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Pages of slabs.
    pub slab_pages: usize,
    /// Pages of slabs that were made equal to others.
    pub merged_pages: usize,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_untouched_is_not_resident() {
        let usage = Usage { live: 3, idle: 60, fragmented: 900, merged: 15, metadata: 12_000, untouched: 21 };
        assert_eq!(usage.resident(), 12_957);
    }
}
