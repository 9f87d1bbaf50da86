//! Functions of libc's by which a program changes what it is as a whole: its user, its root, its namespaces, what is mounted.
//! Weir's background thread is not to be there then (`crates/weir-linux/src/threads/changes.rs`). And `madvise`, by which it says
//! what `fork` is to do with its memory (`crates/weir-linux/src/platform/memory/fork_advice.rs`). Each does what libc's own does,
//! and libc's own does it. That one is found as the next one of its name (`next_symbol.rs`), so a library preloaded behind this
//! one, or before it, keeps its say.
//!
//! In a static program libc's own of a name that is defined here is left out. Some of these functions are one system call in
//! each libc, and make it there themselves. The others are libc's there: it changes all of its threads, which it alone can do.
//!
//! Nothing here is part of allocating: these are called by the program, as rarely as they are, and may call libc.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;

use crate::errno;
use crate::next_symbol::next;
use weir_linux::os::process::{getpid, gettid};
use weir_linux::os::syscall::numbers::{
    __NR_capset, __NR_chroot, __NR_madvise, __NR_pivot_root, __NR_setns, __NR_umount2, __NR_unshare,
};
use weir_linux::os::syscall::{Errno, check, syscall6};
use weir_linux::os::{fd, tasks};
use weir_linux::platform::memory::fork_advice;
use weir_linux::process::heap::BACKGROUND;

/// Defines each function as `around(call of the next one)`. Where there is no next one, it is the system call of a number.
macro_rules! interpose {
    ($($around:ident $name:ident($($argument:ident: $type:ty),*) $(or $number:ident)?;)*) => {
    /// The next functions, once they were looked for.
    #[allow(non_upper_case_globals, reason = "named as the functions are")]
    mod found {
        $(pub(super) static $name: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
            core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());)*
    }

    /// Looks all of them up, while there is one thread. A child that was forked from a process of several threads may not. The
    /// loader's lock may be held there, by a thread that the child does not have. Such children change their user.
    pub fn look_up() {
        $(next(interpose!(@name $name), &found::$name);)*
    }

    $(
        #[doc = concat!("`", stringify!($name), "`, as libc has it.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let next = next(interpose!(@name $name), &found::$name);
            // SAFETY: null, or the function of this name and type, by its library's ABI.
            let next = unsafe {
                core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) -> c_int>>(next)
            };
            let call = || match next {
                // SAFETY: the next function of this name and type, called with what the caller promised for it.
                Some(next) => unsafe { next($($argument),*) },
                None => interpose!(@other $($number)? ($($argument)*)),
            };
            interpose!(@call $around call $($argument)*)
        }
    )*};
    (@name $name:ident) => {
        const {
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a C string"),
            }
        }
    };
    (@other $number:ident ($($argument:ident)*)) => {
        // SAFETY: the call that is behind libc's function in each libc, with what the caller promised for that.
        unsafe { system_call($number, [$($argument as usize),*]) }
    };
    // No libc is known that lacks it.
    (@other ($($argument:ident)*)) => { errno::refuse(errno::ENOSYS) };
    (@call without_for $call:ident $flags:ident) => { without_for($call, $flags) };
    (@call without_to_join $call:ident $descriptor:ident $kind:ident) => { without_to_join($call, $kind) };
    (@call hearing $call:ident $address:ident $len:ident $advice:ident) => { hearing($call, $advice) };
    (@call $around:ident $call:ident $($argument:ident)*) => { $around($call) };
}

/// A system call of at most six words, with `errno`. Those that are not given are 0.
///
/// # Safety
/// The call is sound with these arguments.
unsafe fn system_call<const COUNT: usize>(number: u32, arguments: [usize; COUNT]) -> c_int {
    let mut words = [0; 6];
    words[..COUNT].copy_from_slice(&arguments);
    // SAFETY: the caller's promise. Words that a call does not have are not looked at.
    match check(unsafe { syscall6(number, words[0], words[1], words[2], words[3], words[4], words[5]) }) {
        Ok(value) => value as c_int,
        Err(Errno(code)) => errno::refuse(code),
    }
}

/// For what binds the calling thread, or the threads that libc has made, and no other: the background thread ends after
/// it.
fn after(call: impl FnOnce() -> c_int) -> c_int {
    let result = call();
    if result == 0 {
        BACKGROUND.program_has_changed();
    }
    result
}

/// Whether what a call binds is the calling thread alone, beside the main thread. Weir's thread has what the main thread has, and
/// stays: one that this thread started would have what this thread has, and would have to end at once. What the kernel refuses
/// to a process of several threads it refuses here. Not where the main thread has ended: then the program is what its others are.
/// Where there is no thread of Weir's there is nothing to keep, and no file is opened.
fn is_of_one_among_others() -> bool {
    BACKGROUND.is_there() && gettid() != getpid() && !tasks::main_thread_is_told_to_have_ended()
}

/// As [`after`], for what binds the calling thread alone.
fn after_own(call: impl FnOnce() -> c_int) -> c_int {
    if is_of_one_among_others() { call() } else { after(call) }
}

/// As [`after`], for what binds the threads that have the caller's root directory.
fn after_root(call: impl FnOnce() -> c_int) -> c_int {
    const KCMP_FS: usize = 3;
    let is_own = is_of_one_among_others() && tasks::shares_with_main_thread(KCMP_FS) == Some(false);
    if is_own { call() } else { after(call) }
}

/// A PID namespace, for children of the caller.
const CLONE_NEWPID: c_int = 0x2000_0000;

/// For what is refused to a process of several threads, or while files are open: there is no background thread meanwhile.
fn without(call: impl FnOnce() -> c_int) -> c_int {
    BACKGROUND.without_thread(call)
}

/// As [`without`], unless nothing that is kept apart by threads is asked for: descriptors, semaphores, and the PID namespace of
/// children alone. From a PID namespace for its children on, a thread may make no other thread: one that ended would stay away.
fn without_for(call: impl FnOnce() -> c_int, flags: c_int) -> c_int {
    const CLONE_FILES: c_int = 0x400;
    const CLONE_SYSVSEM: c_int = 0x40000;
    if flags & !(CLONE_FILES | CLONE_SYSVSEM | CLONE_NEWPID) != 0 {
        return if is_of_one_among_others() { call() } else { without(call) };
    }
    // Before Linux 3.12 that namespace is refused to a process of several threads. Whatever kernel is not known to be newer is
    // taken for such a one: the file is of 3.17.
    if flags & CLONE_NEWPID != 0 && fd::stat(c"/proc/thread-self").is_err() { without(call) } else { call() }
}

/// As [`without`], unless what is joined is a PID namespace, for children. Where a program does not say what it joins, it may be
/// anything.
fn without_to_join(call: impl Fn() -> c_int, kind: c_int) -> c_int {
    if kind == CLONE_NEWPID {
        return call();
    }
    if is_of_one_among_others() {
        // This thread may have started Weir's, which then has its working directory and root. A mount namespace is refused so.
        let result = call();
        if result == 0 || errno::get() != errno::EINVAL {
            return result;
        }
    }
    without(call)
}

/// Advice on what `fork` does with a part of memory: undone where that is handed out again.
fn hearing(call: impl FnOnce() -> c_int, advice: c_int) -> c_int {
    fork_advice::is_given(advice);
    call()
}

type Advise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;

/// Finds out whether the program's calls of `madvise` come here: another library may stand before this one. One that
/// passes them on is no obstacle.
pub fn hear_advice() {
    const MADV_DONTFORK: c_int = 10;
    let Some(first) = first_madvise() else { return };
    // SAFETY: of no memory at all: nothing is changed.
    fork_advice::find_out(|| _ = unsafe { first(null_mut(), 0, MADV_DONTFORK) });
}

/// What the program calls by that name.
#[cfg(not(target_feature = "crt-static"))]
fn first_madvise() -> Option<Advise> {
    // SAFETY: libc's function of this type, and a C string; null stands for the program's own view of names.
    let first = crate::next_symbol::lookup().map(|dlsym| unsafe { dlsym(null_mut(), c"madvise".as_ptr().cast()) })?;
    // SAFETY: null, or what goes by the name of libc's function, which has its type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Advise>>(first) }
}

/// A static program has one function of the name.
#[cfg(target_feature = "crt-static")]
fn first_madvise() -> Option<Advise> {
    Some(of_the_caller::madvise)
}

/// What libc does on all of its threads.
#[cfg(not(target_feature = "crt-static"))]
mod of_all_threads {
    use crate::interposed::{CStr, after, c_char, c_int, c_void, errno, next};

    interpose! {
        after setuid(user: u32);
        after setgid(group: u32);
        after seteuid(user: u32);
        after setegid(group: u32);
        after setreuid(real: u32, effective: u32);
        after setregid(real: u32, effective: u32);
        after setresuid(real: u32, effective: u32, saved: u32);
        after setresgid(real: u32, effective: u32, saved: u32);
        after setgroups(count: usize, groups: *const u32);
        after initgroups(user: *const c_char, group: u32);
    }
}

/// What is one system call in each libc.
mod of_the_caller {
    use crate::interposed::*;

    interpose! {
        after_own capset(header: *mut c_void, data: *const c_void) or __NR_capset;
        after_root chroot(path: *const c_char) or __NR_chroot;
        after pivot_root(new: *const c_char, old: *const c_char) or __NR_pivot_root;
        without_for unshare(flags: c_int) or __NR_unshare;
        hearing madvise(address: *mut c_void, len: usize, advice: c_int) or __NR_madvise;
        without_to_join setns(descriptor: c_int, kind: c_int) or __NR_setns;
        without umount(path: *const c_char) or __NR_umount2;
        without umount2(path: *const c_char, flags: c_int) or __NR_umount2;
    }
}

/// What musl's archive has in one object with a function from above. A static program that uses it would get that object, and
/// the function twice.
#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
mod beside {
    use crate::interposed::{c_char, c_int, c_void, system_call};
    use core::ffi::c_ulong;
    use weir_linux::os::syscall::numbers::{__NR_capget, __NR_mount};

    /// As libc has it.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn capget(header: *mut c_void, data: *mut c_void) -> c_int {
        // SAFETY: what the caller promises for it.
        unsafe { system_call(__NR_capget, [header as usize, data as usize]) }
    }

    /// As libc has it.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int {
        let words = [source as usize, target as usize, kind as usize, flags as usize, data as usize];
        // SAFETY: what the caller promises for it.
        unsafe { system_call(__NR_mount, words) }
    }
}

/// Looks up all of libc's own.
pub fn look_up() {
    #[cfg(not(target_feature = "crt-static"))]
    of_all_threads::look_up();
    of_the_caller::look_up();
}
