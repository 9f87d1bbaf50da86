//! The system call instruction, and calls that processors have under several names.

use linux_raw_sys::general as sys;

/// Declares one function for each count of arguments, each with the kernel's raw return value.
macro_rules! system_calls {
    ($($name:ident($($arg:ident in $reg:tt),*);)*) => {$(
        /// A system call by number.
        ///
        /// # Safety
        /// The call must be sound with these arguments, as its manual page says.
        #[inline(always)]
        pub unsafe fn $name(nr: u32 $(, $arg: usize)*) -> isize {
            let ret: isize;
            // SAFETY: the caller answers for the call; the instruction itself clobbers rcx and r11 and no stack.
            unsafe {
                core::arch::asm!("syscall", inlateout("rax") nr as isize => ret, $(in($reg) $arg,)*
                    lateout("rcx") _, lateout("r11") _, options(nostack, preserves_flags));
            }
            ret
        }
    )*};
}

system_calls! {
    call0();
    call1(a in "rdi");
    call2(a in "rdi", b in "rsi");
    call3(a in "rdi", b in "rsi", c in "rdx");
    call4(a in "rdi", b in "rsi", c in "rdx", d in "r10");
    call5(a in "rdi", b in "rsi", c in "rdx", d in "r10", e in "r8");
    call6(a in "rdi", b in "rsi", c in "rdx", d in "r10", e in "r8", f in "r9");
}

/// The number and the arguments of `readlink(2)`.
pub fn readlink(path: usize, buf: usize, room: usize) -> (u32, [usize; 4]) {
    (sys::__NR_readlink, [path, buf, room, 0])
}

/// The number and the arguments of `stat(2)`.
pub fn stat(path: usize, out: usize) -> (u32, [usize; 4]) {
    (sys::__NR_stat, [path, out, 0, 0])
}
