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
            // SAFETY: the caller answers for the call; the kernel keeps all registers but x0, and the stack.
            unsafe {
                core::arch::asm!("svc 0", in("x8") nr as usize, $(in($reg) $arg,)*
                    lateout("x0") ret, options(nostack, preserves_flags));
            }
            ret
        }
    )*};
}

system_calls! {
    call0();
    call1(a in "x0");
    call2(a in "x0", b in "x1");
    call3(a in "x0", b in "x1", c in "x2");
    call4(a in "x0", b in "x1", c in "x2", d in "x3");
    call5(a in "x0", b in "x1", c in "x2", d in "x3", e in "x4");
    call6(a in "x0", b in "x1", c in "x2", d in "x3", e in "x4", f in "x5");
}

/// The number and the arguments of `readlink(2)`.
pub fn readlink(path: usize, buf: usize, room: usize) -> (u32, [usize; 4]) {
    (sys::__NR_readlinkat, [sys::AT_FDCWD as usize, path, buf, room])
}

/// The number and the arguments of `stat(2)`.
pub fn stat(path: usize, out: usize) -> (u32, [usize; 4]) {
    (sys::__NR_newfstatat, [sys::AT_FDCWD as usize, path, out, 0])
}
