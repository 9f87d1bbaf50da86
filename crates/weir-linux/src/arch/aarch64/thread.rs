//! The thread pointer and what lies at a distance from it; how a thread that libc has no record of begins and ends.

use core::arch::asm;
use linux_raw_sys::general as sys;

/// The distance from the thread pointer to `weir_thread_block` (`os/thread_block.rs`).
pub fn block_distance() -> usize {
    let distance: usize;
    // SAFETY: a word of the global offset table, which the loader has filled.
    unsafe {
        asm!("adrp {d}, :gottprel:weir_thread_block", "ldr {d}, [{d}, :gottprel_lo12:weir_thread_block]",
            d = out(reg) distance, options(nostack, pure, readonly, preserves_flags));
    }
    distance
}

/// Where the calling thread's thread pointer points.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: a register that every thread may read.
    unsafe { asm!("mrs {p}, tpidr_el0", p = out(reg) pointer, options(nostack, pure, nomem, preserves_flags)) };
    pointer
}

/// The word at `distance` from the thread pointer.
///
/// # Safety
/// It lies in libc's area or in the library's block.
pub unsafe fn read_thread_word(distance: isize) -> u32 {
    let word: u32;
    // SAFETY: the caller's promise. Not a plain load: the kernel writes such words too.
    unsafe {
        asm!("ldr {w:w}, [{p}, {d}]", w = out(reg) word, p = in(reg) thread_pointer(), d = in(reg) distance,
            options(nostack, readonly, preserves_flags));
    }
    word
}

/// Lays out what the ABI wants at a thread pointer: two words, which libc alone uses.
///
/// # Safety
/// As on every processor: `pointer` is the thread pointer of a thread that is not there yet.
pub unsafe fn lay_out_header(_pointer: usize) {}

/// The system call `clone`, of a thread that runs `body(owner, number)`; what it returns to the caller.
///
/// # Safety
/// `top` is the upper end of a fresh stack, aligned to 16; `pointer` a thread pointer's block; `alive` stays for as
/// long as the thread.
pub unsafe fn clone(
    flags: usize,
    top: usize,
    alive: *mut u32,
    pointer: usize,
    body: extern "C" fn(usize, usize) -> !,
    owner: usize,
    number: usize,
) -> isize {
    let ret: isize;
    // SAFETY: stack, thread pointer and word are the caller's and valid for the new thread. In the child (x0 = 0),
    // which begins with its parent's registers, the stack is empty: call `body`, which never returns. The thread
    // pointer is the fourth argument here and the word that is cleared the fifth.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 60f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x10",
            "mov x1, x11",
            "blr x9",
            "brk 1",
            "60:",
            inlateout("x0") flags as isize => ret, in("x8") sys::__NR_clone as usize,
            in("x1") top, in("x2") alive, in("x3") pointer, in("x4") alive,
            in("x9") body, in("x10") owner, in("x11") number,
        );
    }
    ret
}

/// Unmaps memory, the calling thread's stack in it, and ends the thread.
///
/// # Safety
/// Nothing uses the memory any more, and all signals are blocked.
pub unsafe fn unmap_and_exit(memory: usize, length: usize, status: i32) -> ! {
    // SAFETY: two system calls, between which there is no stack.
    unsafe {
        asm!("svc 0", "mov w0, w9", "mov x8, {exit}", "svc 0", "brk 1",
            in("x8") sys::__NR_munmap as usize, in("x0") memory, in("x1") length, in("w9") status,
            exit = const sys::__NR_exit, options(noreturn, nostack));
    }
}
