//! Where a signal's handler returns to: the kernel's own code, by its vDSO, if nothing is said. What the signal's frame says of
//! a wrong access, and a call on another stack.

use super::syndrome;
use core::arch::asm;

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

/// Calls a function on another stack.
///
/// # Safety
/// Below `top`, a multiple of 16, is memory that nothing else uses, and enough of it. The function does not unwind, and may be
/// called with the argument.
pub unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: as the caller promises. The function keeps x20, and so the stack pointer comes back.
    unsafe {
        asm!("mov x9, sp", "mov sp, x20", "mov x20, x9", "blr {function}", "mov sp, x20",
            inout("x20") top => _, function = in(reg) function, in("x0") argument, out("x9") _, clobber_abi("C"));
    }
}
