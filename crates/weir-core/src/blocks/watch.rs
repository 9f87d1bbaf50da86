//! Which blocks in use were looked at last, and when others are.

/// See the module.
#[derive(Debug)]
pub struct Watch {
    /// The block that was handed out last; 0: none.
    pub(super) newest: usize,
    /// It was looked at as the next one was wanted.
    pub(super) is_seen: bool,
    /// The slot of the table that the next look at many begins at.
    pub(super) next: usize,
    /// When that may be, ns.
    pub(super) due: u64,
}

impl Watch {
    /// No block yet.
    pub(crate) const fn new() -> Self {
        Self { newest: 0, is_seen: true, next: 0, due: 0 }
    }

    /// A block is handed out.
    pub(super) fn note_newest(&mut self, addr: usize) {
        (self.newest, self.is_seen) = (addr, false);
    }
}
