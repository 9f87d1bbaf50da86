//! How the heap learns of the process that it is in: settings from the environment, and handlers for `fork`.
//!
//! The heap works before this, at the defaults. A library that is everybody's malloc has a constructor, which calls
//! [`init`]. A Rust program whose global allocator is [`weir::Weir`] has none (a constructor in a crate would run in
//! every program that links it, used or not): its first allocation does it, [`on_first_use`].

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::os::probe;
use crate::platform::stats_page;
use crate::process::environment;
use crate::process::fork;
use crate::process::heap::HEAP;
use crate::process::unknown_settings;
use crate::threads::background;
use crate::weak_symbol;

type Environment = *const *const u8;

weak_symbol!(
    /// The process's environment, in every libc. Null before libc's own initialiser has run.
    environ = "environ": NonNull<Environment>
);
weak_symbol!(getauxval = "getauxval": unsafe extern "C" fn(usize) -> usize);

/// Reads the settings from the environment and registers for `fork`; does nothing if that was done before.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings that stay where they are.
pub unsafe fn init(envp: *const *const u8) {
    // Sets the fast path up now, while there is one thread.
    HEAP.prepare();
    // SAFETY: as the caller promises.
    unsafe { once(known().unwrap_or(envp)) }
}

/// Before the process ends: brings the counters up to date, if others read them. The heap works on.
pub fn finish() {
    if stats_page::is_shared() {
        HEAP.publish_counts();
    }
}

/// On the first allocation, if libc has been set up by then; else there is a constructor still to come.
pub fn on_first_use() {
    if let Some(envp) = known() {
        // SAFETY: libc's own environment, whose strings stay until the program changes them.
        unsafe { once(envp) }
    }
}

/// The environment, once libc knows it.
fn known() -> Option<Environment> {
    // SAFETY: libc's variable of this type; should another thread replace the array at this moment, the old one is still
    // there, as libc never frees it.
    environ().map(|at| unsafe { at.as_ptr().read() }).filter(|envp| !envp.is_null())
}

/// # Safety
/// As [`init`].
unsafe fn once(envp: Environment) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Relaxed) {
        return;
    }
    // The environment of a program with more rights than its caller is the caller's: it may name files to write.
    let envp = if is_secure() { core::ptr::null() } else { envp };
    // SAFETY: as the caller promises.
    unsafe {
        environment::read(envp);
        unknown_settings::report(envp);
    }
    background::settle();
    fork::register();
}

/// Whether the program has rights that whoever started it has not (setuid, file capabilities).
fn is_secure() -> bool {
    auxiliary(linux_raw_sys::auxvec::AT_SECURE) != Some(0)
}

/// A value of the auxiliary vector.
pub(crate) fn auxiliary(kind: u32) -> Option<usize> {
    match getauxval() {
        // SAFETY: libc's function of this type; any argument is allowed.
        Some(getauxval) => Some(unsafe { getauxval(kind as usize) }),
        None => probe::auxiliary(kind.into()).and_then(|value| value.try_into().ok()),
    }
}
