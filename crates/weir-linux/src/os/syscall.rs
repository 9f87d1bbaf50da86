//! System calls by number, error numbers, and the hook by which tests make a call fail.

use crate::arch::system_call;

/// Numbers of calls that `libweir.so` makes for a program.
pub mod numbers {
    pub use linux_raw_sys::general::{
        __NR_capget, __NR_capset, __NR_chroot, __NR_madvise, __NR_mount, __NR_pivot_root, __NR_setns, __NR_umount2,
        __NR_unshare,
    };
}

/// A kernel error number, as `errno(3)` names them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(#[allow(missing_docs, reason = "errno(3) is the documentation")]
            pub const $name: Errno = Errno(linux_raw_sys::errno::$name as i32);)*
            /// The name that `errno(3)` gives, or `errno` for one that Weir has no use for.
            pub fn name(self) -> &'static str {
                match self {
                    $(Errno::$name => stringify!($name),)*
                    _ => "errno",
                }
            }
        }
    };
}

errnos!(
    EPERM,
    ENOENT,
    ESRCH,
    EINTR,
    EIO,
    ENOEXEC,
    EBADF,
    ECHILD,
    EAGAIN,
    ENOMEM,
    EACCES,
    EFAULT,
    EBUSY,
    EEXIST,
    ENODEV,
    ENOTDIR,
    EISDIR,
    EINVAL,
    ENFILE,
    EMFILE,
    ENOTTY,
    EFBIG,
    ENOSPC,
    ESPIPE,
    EROFS,
    EPIPE,
    ENAMETOOLONG,
    ENOSYS,
    ELOOP,
    ENODATA,
    EOVERFLOW,
    EOPNOTSUPP,
    ETIMEDOUT,
    ECONNREFUSED
);

impl core::fmt::Debug for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            "errno" => write!(f, "errno {}", self.0),
            name => f.write_str(name),
        }
    }
}

/// The answer of a system call: its value, or why it failed.
pub type Result<T> = core::result::Result<T, Errno>;

/// Splits the kernel's return value: -4095..=-1 is an error number.
#[inline]
pub fn check(ret: isize) -> Result<usize> {
    if (-4095..0).contains(&ret) { Err(Errno(-ret as i32)) } else { Ok(ret as usize) }
}

/// Repeats a call while a signal interrupts it.
#[inline]
pub fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

macro_rules! syscalls {
    ($($name:ident = $call:ident($($arg:ident),*);)*) => {$(
        /// A system call by number, with the kernel's raw return value.
        ///
        /// # Safety
        /// The call must be sound with these arguments, as its manual page says.
        #[inline]
        pub unsafe fn $name(nr: u32 $(, $arg: usize)*) -> isize {
            #[cfg(feature = "fault-injection")]
            if let Some(errno) = fault::take(nr) {
                return -(errno.0 as isize);
            }
            // SAFETY: the caller answers for the call.
            unsafe { system_call::$call(nr $(, $arg)*) }
        }
    )*};
}

syscalls! {
    syscall0 = call0();
    syscall1 = call1(a);
    syscall2 = call2(a, b);
    syscall3 = call3(a, b, c);
    syscall4 = call4(a, b, c, d);
    syscall5 = call5(a, b, c, d, e);
    syscall6 = call6(a, b, c, d, e, f);
}

/// Makes one system call of the process fail on demand, so that each failure path can be tested in turn.
#[cfg(feature = "fault-injection")]
pub mod fault {
    use super::Errno;
    use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

    /// Calls still to let through; 0 while nothing is armed.
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    /// Times that a call was made to fail.
    static FIRED: AtomicUsize = AtomicUsize::new(0);
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    static ERRNO: AtomicU32 = AtomicU32::new(0);

    /// The `nth` call (from 1) of system call `nr` from now on, in any thread, fails with `errno`.
    pub fn arm(nr: u32, nth: usize, errno: Errno) {
        LEFT.store(0, SeqCst);
        NUMBER.store(nr, SeqCst);
        ERRNO.store(errno.0 as u32, SeqCst);
        FIRED.store(0, SeqCst);
        LEFT.store(nth, SeqCst);
    }

    /// Lets every call through again; true if the armed call had come and failed.
    pub fn disarm() -> bool {
        LEFT.store(0, SeqCst);
        FIRED.load(SeqCst) != 0
    }

    pub(super) fn take(nr: u32) -> Option<Errno> {
        if LEFT.load(SeqCst) == 0 || NUMBER.load(SeqCst) != nr {
            return None;
        }
        let before = LEFT.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).ok()?;
        (before == 1).then(|| {
            FIRED.fetch_add(1, SeqCst);
            Errno(ERRNO.load(SeqCst) as i32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_split_from_values() {
        assert_eq!(check(0), Ok(0));
        assert_eq!(check(-1), Err(Errno::EPERM));
        assert_eq!(check(-4095), Err(Errno(4095)));
        assert_eq!(check(-4096), Ok(usize::MAX - 4095));
        assert_eq!(std::format!("{} {}", Errno::EACCES, Errno(4000)), "EACCES errno 4000");
    }

    #[test]
    fn six_arguments_arrive_in_order() {
        use linux_raw_sys::general::*;
        let len = 8192;
        // SAFETY: a new anonymous mapping, at no fixed address, touches nothing that exists.
        let at = unsafe {
            syscall6(
                __NR_mmap,
                0,
                len,
                (PROT_READ | PROT_WRITE) as usize,
                (MAP_PRIVATE | MAP_ANONYMOUS) as usize,
                usize::MAX,
                0,
            )
        };
        let at = check(at).unwrap();
        // SAFETY: the mapping was just made and is `len` bytes long.
        unsafe { (at as *mut u8).add(len - 1).write(7) };
        // SAFETY: no other code has the address.
        assert_eq!(unsafe { syscall2(__NR_munmap, at, len) }, 0);
    }
}
