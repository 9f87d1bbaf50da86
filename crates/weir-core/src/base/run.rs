//! A range of addresses.

/// A page-aligned range of addresses, laid out as the system calls' vectors of ranges are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub addr: usize,
    /// Length in bytes, a multiple of the page size.
    pub len: usize,
}
