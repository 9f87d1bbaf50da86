//! Kinds of memory behind a pageblock.

/// Cost of a report of a pageblock's free pages: whether a huge page is lost by it, and how well used that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// No huge page.
    Small = 0,
    /// A huge page of which at most `SPARSE` pages are in use: it costs more memory than it saves time.
    SparseHuge = 1,
    /// A huge page in good use: split under severe pressure only.
    Huge = 2,
}
