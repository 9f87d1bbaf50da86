//! The steps of reclaim, and sets of them. Their order is in [`super::order`].

/// Steps of reclaim, each scanned in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Memory that the system refused to take gets another try, and so does what was released lazily.
    Refused,
    /// Metadata of memory that was released in the window before, and is not wanted since.
    OldMetadata,
    /// Blocks mapped on their own that were freed and retained.
    Retained,
    /// Whole free pageblocks, backed by memory.
    Blocks,
    /// Idle pages of page pools.
    Pools,
    /// CPUs' buckets: of caches that have been idle for long, or of all.
    Buckets,
    /// Depots of caches that did not run short lately, down to their working sets; the longest ago first.
    StaleCaches,
    /// Depots of caches that ran short lately.
    WarmCaches,
    /// Whole free pageblocks again, if caches gave any.
    BlocksAgain,
    /// Objects of sparse slabs are to be moved, where their caches have a callback for it.
    Moves,
    /// Inactive objects of evictable caches.
    Evict,
    /// The program's own shrinkers.
    Shrink,
    /// Buckets and depots again, if shrinkers freed anything: what they free lies there.
    CachesAgain,
    /// Free runs of partly used pageblocks.
    Runs,
    /// Free pages inside slabs.
    SlabPages,
    /// Pageblocks that the kernel filled with a huge page behind the engine's back.
    Filled,
    /// Pages inside slabs that few objects are left on are made equal, for the kernel to merge.
    Merge,
    /// Huge pages that have been in little use for long.
    Sparse,
    /// Metadata of what is free now.
    Metadata,
    /// Whole free pageblocks without memory are unmapped, where the system counts what is mapped.
    Mappings,
    /// Split huge pages are cooled, so that the kernel leaves them split. It is in no goal's row: it ends them all but one
    /// ([`super::order::run`]).
    Cool,
}

impl Step {
    /// Whether the step takes from what is in use, and so goes by the goal's priority.
    pub(crate) fn is_by_priority(self) -> bool {
        matches!(self, Self::Evict | Self::Shrink)
    }
}

/// A set of steps, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(u32);

impl Steps {
    /// Those of `steps`.
    pub const fn of(steps: &[Step]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < steps.len() {
            bits |= 1 << steps[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// These, and those of `steps`.
    pub(crate) const fn with(self, steps: &[Step]) -> Self {
        Self(self.0 | Self::of(steps).0)
    }

    /// These but for those of `steps`.
    pub(crate) const fn without(self, steps: &[Step]) -> Self {
        Self(self.0 & !Self::of(steps).0)
    }

    /// Whether `step` is one of them.
    pub const fn has(self, step: Step) -> bool {
        self.0 >> step as u32 & 1 == 1
    }
}
