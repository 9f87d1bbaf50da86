//! The thread pointer and what lies at a distance from it; how a thread that libc has no record of begins and ends.

use core::arch::asm;
use linux_raw_sys::general as sys;

/// The distance from the thread pointer to `weir_thread_block` (`os/thread_block.rs`).
pub fn block_distance() -> usize {
    let distance: usize;
    // SAFETY: a word of the global offset table, which the loader has filled.
    unsafe {
        asm!("mov {d}, [rip + weir_thread_block@GOTTPOFF]", d = out(reg) distance,
            options(nostack, pure, readonly, preserves_flags));
    }
    distance
}

/// Where the calling thread's thread pointer points.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the thread pointer, which x86-64's ABI keeps at distance 0 of itself.
    unsafe { asm!("mov {p}, fs:[0]", p = out(reg) pointer, options(nostack, pure, readonly, preserves_flags)) };
    pointer
}

/// The word at `distance` from the thread pointer.
///
/// # Safety
/// It lies in libc's area or in the library's block.
pub unsafe fn read_thread_word(distance: isize) -> u32 {
    let word: u32;
    // SAFETY: the caller's promise.
    unsafe { asm!("mov {w:e}, fs:[{d}]", w = out(reg) word, d = in(reg) distance, options(nostack, readonly)) };
    word
}

/// Lays out what the ABI wants at a thread pointer: its own address, there and in the third word.
///
/// # Safety
/// `pointer` is the thread pointer of a thread that is not there yet; the words are the caller's.
pub unsafe fn lay_out_header(pointer: usize) {
    // SAFETY: the caller's words.
    unsafe {
        (pointer as *mut usize).write(pointer);
        (pointer as *mut usize).add(2).write(pointer);
    }
}

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
    // SAFETY: stack, thread pointer and word are the caller's and valid for the new thread. In the child (rax = 0),
    // which begins with its parent's registers, the stack is empty: call `body`, which never returns.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 60f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "mov rsi, r13",
            "call r9",
            "ud2",
            "60:",
            inlateout("rax") sys::__NR_clone as isize => ret,
            in("rdi") flags, in("rsi") top, in("rdx") alive, in("r10") alive, in("r8") pointer,
            in("r9") body, in("r12") owner, in("r13") number,
            lateout("rcx") _, lateout("r11") _,
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
        asm!("syscall", "mov edi, r12d", "mov eax, {exit}", "syscall", "ud2",
            in("rax") sys::__NR_munmap, in("rdi") memory, in("rsi") length, in("r12") status,
            exit = const sys::__NR_exit, options(noreturn, nostack));
    }
}
