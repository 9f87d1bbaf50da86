//! Where a signal's handler returns to: the kernel's own code, by its vDSO, if nothing is said. And what the signal's frame says
//! of a wrong access.

use super::syndrome;

/// Flags by which a handler's structure says where it returns to, and that place.
pub fn restorer() -> (u64, usize) {
    (0, 0)
}

/// Whether the access for which the signal came was a write; `None`: the frame does not say.
///
/// # Safety
/// The context of a handler of a signal for a wrong access, as the kernel passed it.
pub unsafe fn is_write(context: *const u8) -> Option<bool> {
    /// Where the records lie in a `ucontext_t`, at a multiple of 16: behind flags, link, stack, masks and registers.
    const RECORDS: usize = 464;
    const WORDS: usize = 4096 / size_of::<u64>();
    // SAFETY: the kernel's structure, which has these bytes from this place on.
    syndrome::is_write(unsafe { &*context.add(RECORDS).cast::<[u64; WORDS]>() })
}
