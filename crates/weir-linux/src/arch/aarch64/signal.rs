//! Where a signal's handler returns to: the kernel's own code, by its vDSO, if nothing is said.

/// Flags by which a handler's structure says where it returns to, and that place.
pub fn restorer() -> (u64, usize) {
    (0, 0)
}
