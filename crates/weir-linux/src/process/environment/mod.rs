//! The environment: where it is, and reading it once, at the start of the process. It sets parameters (`WEIR_` and a tunable's
//! name), where the counters and the heap profile go, and systemd's watch.
//!
//! The heap works before this, at the defaults. A library that is a whole program's malloc has a constructor, which
//! calls [`crate::process::heap::init`]. A Rust program whose global allocator is `weir::Weir` has none that does
//! it. A constructor in a crate runs in every program that links it, used or not. So the program's first allocation
//! does it, [`crate::process::heap::on_first_use`]. A program may have cleared its environment before.

pub mod reexec;
mod unknown_settings;

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_core::telemetry::stats::{MAGIC, VERSION};
use weir_core::telemetry::tunables::SettingErrorKind;

use crate::messages;
use crate::os::process;
use crate::os::rights::sandbox;
use crate::os::symbol::environ;
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page;
use crate::pressure::systemd_watch;
use crate::process::exit_profile;

/// The environment: null, or a null-terminated array of C strings.
pub(super) type Environment = *const *const u8;

/// libc's environment, once libc has set it up.
pub(super) fn of_libc() -> Option<Environment> {
    // SAFETY: libc's variable of this type. Should another thread replace the array at this moment, the old one is
    // still there, as libc never frees it.
    environ().map(|at| unsafe { at.as_ptr().read() }).filter(|envp| !envp.is_null())
}

/// Reads the settings from the environment; `false`: that was done before.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings that stay where they are.
pub(super) unsafe fn read_once(envp: Environment) -> bool {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Relaxed) {
        return false;
    }
    messages::standard_error::note_start();
    // The environment of a program with more rights than its caller is the caller's: it may name files to write.
    let envp = if is_secure() { core::ptr::null() } else { envp };
    // SAFETY: null, or the caller's array.
    unsafe {
        read(envp);
        unknown_settings::say(envp);
    }
    if TUNABLES.background.get() != 0 && (TUNABLES.publish.get() | TUNABLES.control.get()) != 0 {
        sandbox::note_start();
    }
    true
}

/// Whether the program has rights that its caller has not (setuid, file capabilities).
fn is_secure() -> bool {
    process::auxiliary(linux_raw_sys::auxvec::AT_SECURE) != Some(0)
}

/// # Safety
/// As for [`read_once`].
unsafe fn read(envp: *const *const u8) {
    STATS.version.store(VERSION, Relaxed);
    STATS.pid.store(process::getpid(), Relaxed);
    STATS.magic.store(MAGIC, Relaxed);
    let (mut at, mut stats) = (envp, None);
    // SAFETY: `envp` is null or an array whose last entry is null, where the walk ends.
    while let Some(entry) = unsafe { at.as_ref() }.filter(|p| !p.is_null()) {
        // SAFETY: the array's entries are C strings, and this one is not null.
        let text = unsafe { CStr::from_ptr((*entry).cast()) }.to_bytes();
        match text.strip_prefix(b"WEIR_STATS=") {
            Some(named) => stats = Some(named),
            None => match text.strip_prefix(b"WEIR_PROFILE=") {
                Some(named) => exit_profile::keep_name(named),
                None => setting(text),
            },
        }
        at = at.wrapping_add(1);
    }
    if let Some(named) = stats {
        stats_page::take(named);
    }
}

fn setting(entry: &[u8]) {
    let Some(equals) = entry.iter().position(|&b| b == b'=') else { return };
    let (name, value) = (&entry[..equals], &entry[equals + 1..]);
    if systemd_watch::keep_variable(name, value) {
        return;
    }
    if let Some(name) = name.strip_prefix(b"WEIR_") {
        tunable(name, value, entry);
    }
}

fn tunable(name: &[u8], value: &[u8], entry: &[u8]) {
    let mut lower = [0u8; 40];
    let Some(lower) = lower.get_mut(..name.len()) else { return };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let Err(error) = TUNABLES.set(lower, value) else { return };
    // What is unknown is said by `unknown_settings`.
    if error.kind() != SettingErrorKind::Unknown && !unknown_settings::parent_said(entry) {
        messages::setting_ignored(name, value, format_args!("{}", error.reason()));
    }
}
