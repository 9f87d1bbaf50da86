//! Where a signal's handler returns to, what its frame says of a wrong access, and a call on another stack.

use core::arch::{asm, global_asm};
use linux_raw_sys::general::__NR_rt_sigreturn;

unsafe extern "C" {
    fn weir_restore_rt();
}

// Its unwind table says that the kernel's frame lies at the stack pointer, so that debuggers and unwinders step
// through. The frame is a `struct ucontext`, with the registers from byte 40 on. An unwinder looks at the byte before a
// return address, so the entry begins with one instruction more.
global_asm!(
    ".pushsection .text",
    ".p2align 4",
    ".type weir_restore_rt, @function",
    ".globl weir_restore_rt",
    ".hidden weir_restore_rt",
    ".cfi_startproc simple",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_offset r8, 40",
    ".cfi_offset r9, 48",
    ".cfi_offset r10, 56",
    ".cfi_offset r11, 64",
    ".cfi_offset r12, 72",
    ".cfi_offset r13, 80",
    ".cfi_offset r14, 88",
    ".cfi_offset r15, 96",
    ".cfi_offset rdi, 104",
    ".cfi_offset rsi, 112",
    ".cfi_offset rbp, 120",
    ".cfi_offset rbx, 128",
    ".cfi_offset rdx, 136",
    ".cfi_offset rax, 144",
    ".cfi_offset rcx, 152",
    ".cfi_offset rsp, 160",
    ".cfi_offset rip, 168",
    "nop",
    "weir_restore_rt:",
    "mov rax, {rt_sigreturn}",
    "syscall",
    ".size weir_restore_rt, . - weir_restore_rt",
    ".cfi_endproc",
    ".popsection",
    rt_sigreturn = const __NR_rt_sigreturn,
);

/// Flags by which a handler's structure says where it returns to, and that place.
pub fn restorer() -> (u64, usize) {
    const SA_RESTORER: u64 = 0x0400_0000;
    (SA_RESTORER, weir_restore_rt as *const () as usize)
}

/// Whether the access for which the signal came was a write.
///
/// # Safety
/// The context of a handler of a signal for a wrong access, as the kernel passed it.
pub unsafe fn is_write(context: *const u8) -> Option<bool> {
    /// Where the error code of a page fault lies in a `ucontext_t`, and its bit for writes.
    const ERROR: usize = 40 + 19 * 8;
    const WRITE: usize = 2;
    // SAFETY: the kernel's structure, at the offset that its ABI has.
    let error = unsafe { context.add(ERROR).cast::<usize>().read() };
    Some(error & WRITE != 0)
}

/// Calls a function on another stack.
///
/// # Safety
/// Below `top`, a multiple of 16, is memory that nothing else uses, and enough of it. The function does not unwind, and may be
/// called with the argument.
pub unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: as the caller promises. The function keeps r12, and so the stack pointer comes back.
    unsafe {
        asm!("xchg rsp, r12", "call {function}", "mov rsp, r12",
            inout("r12") top => _, function = in(reg) function, in("rdi") argument, clobber_abi("C"));
    }
}
