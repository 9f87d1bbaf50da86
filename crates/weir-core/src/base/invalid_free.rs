//! Faults of a pointer that a program frees or resizes, or asks the size of.

use core::fmt;

/// Fault of a pointer that was freed, as far as the engine can tell cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidFree {
    /// The object was already free.
    DoubleFree,
    /// The address lies inside an object, not at its start.
    InteriorPointer,
    /// No block begins there.
    ForeignPointer,
    /// A run of a page pool's begins there, which goes back to its pool.
    PoolPages,
    /// The usable size was asked for, and no block begins there.
    SizeOfNoBlock,
    /// The usable size was asked for, and a run of a page pool's begins there.
    SizeOfPoolPages,
}

impl fmt::Display for InvalidFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoubleFree => "double free",
            Self::InteriorPointer => "free of a pointer into the middle of a block",
            Self::ForeignPointer => "free of a pointer that was never allocated",
            Self::PoolPages => "free of pages of a page pool",
            Self::SizeOfNoBlock => "malloc_usable_size of a pointer that no block begins at",
            Self::SizeOfPoolPages => "malloc_usable_size of pages of a page pool",
        })
    }
}
