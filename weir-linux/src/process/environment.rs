//! What the environment says: parameters (`WEIR_` and a tunable's name), where the counters go, systemd's watch.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use weir_core::telemetry::stats::{MAGIC, VERSION};
use weir_core::telemetry::tunables::SettingErrorKind;

use crate::message::Line;
use crate::os::process;
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page;
use crate::pressure::pressure_watch::Request;

static WATCH: Kept = Kept::new();
static WATCH_WRITE: Kept = Kept::new();

/// A value of the environment's, copied: programs that set their process title write over the original.
struct Kept {
    text: UnsafeCell<[u8; 512]>,
    set: AtomicBool,
}

// SAFETY: written once, before `set` and before there is a second thread; only read after.
unsafe impl Sync for Kept {}

impl Kept {
    const fn new() -> Self {
        Self { text: UnsafeCell::new([0; 512]), set: AtomicBool::new(false) }
    }

    /// Keeps `value` if it is not too long, the last byte staying zero.
    fn keep(&self, value: &[u8]) {
        // SAFETY: as for `Sync`.
        let text = unsafe { &mut *self.text.get() };
        if value.len() < text.len() && !self.set.load(Relaxed) {
            text[..value.len()].copy_from_slice(value);
            self.set.store(true, Release);
        }
    }

    fn get(&self) -> Option<&CStr> {
        // SAFETY: as for `Sync`.
        self.set.load(Acquire).then(|| unsafe { &*self.text.get() }).and_then(|t| CStr::from_bytes_until_nul(t).ok())
    }
}

/// Reads the environment.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings that stay where they are.
pub(crate) unsafe fn read(envp: *const *const u8) {
    STATS.version.store(VERSION, Relaxed);
    STATS.pid.store(process::getpid(), Relaxed);
    STATS.magic.store(MAGIC, Relaxed);
    let (mut at, mut stats) = (envp, None);
    // SAFETY: as the caller promises.
    while let Some(entry) = unsafe { at.as_ref() }.filter(|p| !p.is_null()) {
        // SAFETY: a C string.
        let text = unsafe { CStr::from_ptr((*entry).cast()) }.to_bytes();
        match text.strip_prefix(b"WEIR_STATS=") {
            Some(named) => stats = Some(named),
            None => setting(text),
        }
        at = at.wrapping_add(1);
    }
    if let Some(named) = stats {
        stats_page::take(named);
    }
}

fn setting(bytes: &[u8]) {
    let Some(equals) = bytes.iter().position(|&b| b == b'=') else { return };
    let (name, value) = (&bytes[..equals], &bytes[equals + 1..]);
    match name {
        b"MEMORY_PRESSURE_WATCH" => WATCH.keep(value),
        b"MEMORY_PRESSURE_WRITE" => WATCH_WRITE.keep(value),
        _ => {
            if let Some(name) = name.strip_prefix(b"WEIR_") {
                tunable(name, value);
            }
        }
    }
}

fn tunable(name: &[u8], value: &[u8]) {
    let mut lower = [0u8; 40];
    let Some(lower) = lower.get_mut(..name.len()) else { return };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let mut line = Line::new();
    let shown = |bytes: &[u8]| -> Line {
        let mut text = Line::new();
        text.push(bytes);
        text
    };
    let Err(error) = TUNABLES.set(lower, value) else { return };
    if error.kind() == SettingErrorKind::Unknown {
        // Said by `unknown_settings`.
        return;
    }
    let said = core::fmt::Write::write_fmt(
        &mut line,
        format_args!("weir: WEIR_{}={}: {}; ignored", shown(name), shown(value), error.reason()),
    );
    if said.is_ok() {
        line.say();
    }
}

/// The service manager's watch, as the environment asks for it.
pub(crate) fn watch_request() -> Request<'static> {
    Request::from_variables(WATCH.get().map(CStr::to_bytes), WATCH_WRITE.get().map(CStr::to_bytes))
}
