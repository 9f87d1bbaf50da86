//! Names in the environment that are no setting, and a watch that cannot be used. Each is said in a line, as a setting
//! that is only misspelt would be missed for long.
//!
//! Once, not by every process of a build: a process is silent about what its parent has said. The same holds for a setting with a
//! value that it cannot have.

use core::ffi::CStr;
use core::ops::ControlFlow;
use weir_core::telemetry::tunables::TABLE;

use crate::messages;
use crate::os::file::path::FixedPath;
use crate::os::file::text::for_each_record;
use crate::os::process;
use crate::pressure::systemd_watch::{self, Request};

const PREFIX: &[u8] = b"WEIR_";
/// A name that `weir run` sets, which has looked at the others itself.
const STATS: &[u8] = b"WEIR_STATS";
/// Names that are no settings: the heap profile's file, and those of Weir's tools and tests, without the prefix; the tests' own begin with `TEST_`.
const TOOLS: [&[u8]; 7] = [b"STATS", b"PROFILE", b"LIB", b"PRELOAD", b"STRESS_SECONDS", b"PEERS_DIR", b"GUEST_KERNEL"];
/// Longest name that is compared with those of settings.
const LONGEST: usize = 40;
/// Bytes of the parent's environment that are looked at in one piece. A longer entry counts as none.
const PIECE: usize = 8192;

/// Says which names of the environment are not understood, and whether the watch can be used.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings.
pub(super) unsafe fn say(envp: *const *const u8) {
    let entries = || {
        (0..).map_while(|i| {
            // SAFETY: `envp` is null or an array whose last entry is null, where the walk ends.
            let entry = unsafe { envp.wrapping_add(i).as_ref() }.filter(|p| !p.is_null())?;
            // SAFETY: the array's entries are C strings, and this one is not null.
            Some(unsafe { CStr::from_ptr(entry.cast()) }.to_bytes())
        })
    };
    if !entries().any(|entry| split(entry).0 == STATS) {
        for entry in entries() {
            let unknown = split(entry).0.strip_prefix(PREFIX).filter(|name| !is_known(name));
            if let Some(name) = unknown.filter(|_| !parent_said(entry)) {
                messages::unknown_setting(name, nearest(name));
            }
        }
    }
    let value = |name: &[u8]| entries().map(split).find(|entry| entry.0 == name).map(|entry| entry.1);
    let (watch, write) = (value(b"MEMORY_PRESSURE_WATCH"), value(b"MEMORY_PRESSURE_WRITE"));
    let usable = match Request::from_variables(watch, write) {
        Request::Watch { path, write } => systemd_watch::is_usable(path, write),
        Request::Unset => watch.is_none_or(<[u8]>::is_empty),
        Request::Off => true,
    };
    let whole = || entries().find(|entry| split(entry).0 == b"MEMORY_PRESSURE_WATCH").unwrap_or_default();
    if !usable && !parent_said(whole()) {
        messages::watch_ignored();
    }
}

/// An entry's name and value.
fn split(entry: &[u8]) -> (&[u8], &[u8]) {
    let end = entry.iter().position(|&b| b == b'=').unwrap_or(entry.len());
    (&entry[..end], entry.get(end + 1..).unwrap_or_default())
}

fn is_known(name: &[u8]) -> bool {
    name.starts_with(b"TEST_")
        || TOOLS.contains(&name)
        || TABLE.iter().any(|setting| setting.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The setting that a misspelt name is nearest to, if it is near any: two letters off, or a third of them.
fn nearest(name: &[u8]) -> Option<&'static str> {
    let near = |setting: &'static str| Some((distance(name, setting.as_bytes())?, setting));
    let (steps, setting) = TABLE.iter().filter_map(|setting| near(setting.name)).min()?;
    (steps <= (name.len() / 3).max(2)).then_some(setting)
}

/// Letters to add, drop or change to come from one name to the other, in whatever case (Levenshtein, row by row).
fn distance(a: &[u8], b: &[u8]) -> Option<usize> {
    if a.len() > LONGEST || b.len() > LONGEST {
        return None;
    }
    let mut row = core::array::from_fn::<usize, { LONGEST + 1 }, _>(|i| i);
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    Some(row[b.len()])
}

/// Whether the parent was started with the same entry, and with this library preloaded: then it has said so.
#[cold]
#[inline(never)]
pub(super) fn parent_said(entry: &[u8]) -> bool {
    let (parent, mut piece) = (process::getppid(), [0; PIECE]);
    if parent == process::getpid() {
        return false;
    }
    let Some(path) = FixedPath::format(format_args!("/proc/{parent}/environ")) else { return false };
    let (mut is_preloaded, mut is_there) = (false, false);
    let each = |other: &[u8]| {
        is_preloaded |= other.starts_with(b"LD_PRELOAD=") && other.windows(7).any(|part| part == b"libweir");
        is_there |= other == entry;
        if is_preloaded && is_there { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // What was read before an error counts.
    let _ = for_each_record(path.as_c_str(), 0, &mut piece, each);
    is_preloaded && is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        for (name, meant) in [
            ("LIMTI", Some("limit")),
            ("limits", Some("limit")),
            ("BACKGRUOND", Some("background")),
            ("IDLEMS", Some("idle_ms")),
            ("HEADROOM_PERCENTS", Some("headroom_percent")),
            ("X", None),
            ("SOMETHING_ELSE_ALTOGETHER", None),
            ("", None),
        ] {
            assert_eq!(nearest(name.as_bytes()), meant, "{name}");
        }
        assert_eq!(nearest(&[b'a'; 100]), None);
        assert_eq!(distance(b"kitten", b"sitting"), Some(3));
    }

    #[test]
    fn names_of_tools_and_settings_are_known() {
        assert!(is_known(b"STATS") && is_known(b"LIMIT") && is_known(b"limit") && is_known(b"TEST_LIBRARY"));
        assert!(!is_known(b"LIMITS") && !is_known(b"") && TABLE.iter().all(|t| t.name.len() <= LONGEST));
        assert_eq!(split(b"A=b=c"), (&b"A"[..], &b"b=c"[..]));
        assert_eq!(split(b"A"), (&b"A"[..], &b""[..]));
    }
}
