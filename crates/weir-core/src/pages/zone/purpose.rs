//! What pages are taken for.

/// What pages are taken for. Slabs are small and stay, runs come and go and grow: where they lie side by side a run that
/// moves leaves a hole with a slab in it, too short for the next. So each has pageblocks of its own as far as that costs
/// no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// One large block.
    Run = 0,
    /// Equal objects.
    Slab = 1,
}
