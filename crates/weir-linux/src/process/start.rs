//! The start of the process, as far as the heap is concerned: where the environment is, and reading it once.
//!
//! The heap works before this, at the defaults. A library that is a whole program's malloc has a constructor, which
//! calls [`super::heap::init`]. A Rust program whose global allocator is `weir::Weir` has none (a constructor in a
//! crate would run in every program that links it, used or not): its first allocation does it,
//! [`super::heap::on_first_use`].

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::os::auxv;
use crate::os::weak_symbol::weak_symbol;
use crate::platform::sandbox;
use crate::platform::statics::TUNABLES;
use crate::process::{environment, unknown_settings};

/// The environment: null, or a null-terminated array of C strings.
pub(super) type Environment = *const *const u8;

weak_symbol!(
    /// The process's environment, in every libc. Null before libc's own initialiser has run.
    environ = "environ" in libc: NonNull<Environment>
);

/// libc's environment, once libc has set it up.
pub(super) fn environment_of_libc() -> Option<Environment> {
    // SAFETY: libc's variable of this type; should another thread replace the array at this moment, the old one is
    // still there, as libc never frees it.
    environ().map(|at| unsafe { at.as_ptr().read() }).filter(|envp| !envp.is_null())
}

/// Reads the settings from the environment; `false`: that was done before.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings that stay where they are.
pub(super) unsafe fn read_environment_once(envp: Environment) -> bool {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Relaxed) {
        return false;
    }
    // The environment of a program with more rights than its caller is the caller's: it may name files to write.
    let envp = if is_secure() { core::ptr::null() } else { envp };
    // SAFETY: null, or the caller's array.
    unsafe {
        environment::read(envp);
        unknown_settings::report(envp);
    }
    if TUNABLES.background.get() == 1 && (TUNABLES.publish.get() | TUNABLES.control.get()) != 0 {
        sandbox::note_start();
    }
    true
}

/// Whether the program has rights that its caller has not (setuid, file capabilities).
fn is_secure() -> bool {
    auxv::value(linux_raw_sys::auxvec::AT_SECURE) != Some(0)
}
