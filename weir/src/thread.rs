//! A thread that libc does not know of: no TLS of its own, no allocation, no stack guard of libc's.
//!
//! `pthread_create` allocates and takes libc's locks, and Weir starts its thread from inside `malloc`. So the thread
//! is made by `clone`. It has a block of zeros where its thread pointer points, runs Weir's code alone, and all its
//! signals are blocked.

use crate::os::mman::{self, PROT_NONE};
use crate::os::process::set_signal_mask;
use core::arch::asm;
use linux_raw_sys::general as sys;

/// Bytes of stack: the deepest path holds a few 2 KiB arrays (a report's runs).
const STACK: usize = 64 << 10;
/// Bytes below and above the thread pointer: static TLS lies below, libc's thread header above.
const TLS: usize = 32 << 10;
const GUARD: usize = 4096;

/// Starts `body` on a new thread. `false`: memory or the thread was refused.
pub fn spawn(body: extern "C" fn() -> !) -> bool {
    let Ok(memory) = mman::mmap_anonymous(GUARD + STACK + 2 * TLS, 0) else { return false };
    let top = memory as usize + GUARD + STACK;
    let pointer = top + TLS;
    // SAFETY: fresh memory of this function's; the first word at the thread pointer is its own address, by the ABI.
    unsafe {
        let _ = mman::mprotect(memory, GUARD, PROT_NONE);
        (pointer as *mut usize).write(pointer);
        (pointer as *mut usize).add(2).write(pointer);
    }
    let flags = sys::CLONE_VM
        | sys::CLONE_FS
        | sys::CLONE_FILES
        | sys::CLONE_SIGHAND
        | sys::CLONE_THREAD
        | sys::CLONE_SYSVSEM
        | sys::CLONE_SETTLS;
    let Ok(mask) = set_signal_mask(u64::MAX) else { return false };
    // SAFETY: the child runs on its own stack and never returns from `body`; the parent goes on as if nothing was.
    let ret = unsafe { clone(flags as usize, top, pointer, body) };
    let _ = set_signal_mask(mask);
    if ret < 0 {
        // SAFETY: nobody got to use it.
        let _ = unsafe { mman::munmap(memory, GUARD + STACK + 2 * TLS) };
    }
    ret > 0
}

/// # Safety
/// `top` is the upper end of a fresh stack, aligned to 16; `pointer` a thread pointer's block.
unsafe fn clone(flags: usize, top: usize, pointer: usize, body: extern "C" fn() -> !) -> isize {
    let ret: isize;
    // SAFETY: as the caller promises. In the child (rax = 0) the stack is empty: call `body`, which never returns.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 60f",
            "xor ebp, ebp",
            "call r9",
            "ud2",
            "60:",
            inlateout("rax") sys::__NR_clone as isize => ret,
            in("rdi") flags, in("rsi") top, in("rdx") 0, in("r10") 0, in("r8") pointer, in("r9") body,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    ret
}
