//! What the environment sets: parameters (`WEIR_` and a tunable's name), where the counters and the heap profile go,
//! systemd's watch.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::{MAGIC, VERSION};
use weir_core::telemetry::tunables::SettingErrorKind;

use crate::messages;
use crate::os::process;
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page;
use crate::pressure::systemd_watch;
use crate::process::exit_profile;

/// Reads the environment.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings that stay where they are.
pub(crate) unsafe fn read(envp: *const *const u8) {
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
        tunable(name, value);
    }
}

fn tunable(name: &[u8], value: &[u8]) {
    let mut lower = [0u8; 40];
    let Some(lower) = lower.get_mut(..name.len()) else { return };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let Err(error) = TUNABLES.set(lower, value) else { return };
    // What is unknown is reported by `unknown_settings`.
    if error.kind() != SettingErrorKind::Unknown {
        messages::setting_ignored(name, value, format_args!("{}", error.reason()));
    }
}
