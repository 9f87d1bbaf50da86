//! Whether a running process has Weir and is served by it, and why not.

use super::check::{Check, State};
use super::{other_allocator, pymalloc};
use crate::base::units::bytes;
use crate::inspect::control;
use crate::inspect::locate;
use crate::inspect::memory_reader;
use crate::inspect::page::{Inspected, Missing, Page};
use crate::processes::program_file;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Opening;

/// Resident bytes from which on it is told that little of them is Weir's.
const LARGE: u64 = 16 << 20;
/// The share of them below which that is little: 1 / SHARE.
const SHARE: u64 = 20;

/// Looks at everything.
pub(super) fn checks(pid: i32) -> Vec<Check> {
    let inspected = match Inspected::new(pid) {
        Ok(inspected) => inspected,
        Err(why) => return vec![unseen(pid, &why)],
    };
    let page = inspected.page();
    let mut checks = vec![library(&inspected, page.as_ref())];
    let Ok(page) = page else { return checks };
    checks.push(serving(&inspected, &page));
    if pymalloc::serves(pid, &inspected.maps, inspected.process.exe().ok().as_deref()) {
        let found = format!("{} serves objects of up to 512 bytes", pymalloc::NAME.trim_end_matches(','));
        checks.push(check("python", false, found, pymalloc::CURE));
    }
    checks.extend([fast_path(&page), thread(&page), figures(&page), channel(&page)]);
    checks
}

fn fatal(name: &'static str, found: String, effect: &'static str) -> Check {
    Check { name, state: State::Fatal, found, effect }
}

fn check(name: &'static str, good: bool, found: String, effect: &'static str) -> Check {
    Check { name, state: if good { State::Ok } else { State::Limited }, found, effect }
}

/// A process that cannot be looked into.
fn unseen(pid: i32, why: &Missing) -> Check {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
    match (why, owner) {
        (Missing::NotAllowed, Ok(owner)) => fatal(
            "process",
            format!("may not be looked into: it is user {owner}'s, or guards itself"),
            "run this as root",
        ),
        _ => fatal("process", format!("there is no process {pid}"), "check its number"),
    }
}

fn library(inspected: &Inspected, page: Result<&Page, &Missing>) -> Check {
    let path = locate::library(&inspected.maps);
    let found = path.as_ref().map(|path| format!("loaded: {}", path.display()));
    match page {
        Ok(_) => check("library", true, found.unwrap_or("built into the program".into()), "the process has Weir"),
        Err(Missing::NotShared) => check(
            "library",
            false,
            found.unwrap_or("built into the program".into()),
            "its figures are private (a small heap, or `publish` or `background` is 0): root can read them",
        ),
        Err(Missing::OtherVersion(version)) => check(
            "library",
            false,
            format!("of another version: its statistics are of version {version}"),
            "use the `weir` of the same release",
        ),
        Err(why @ Missing::NotAnswering) => {
            fatal("library", why.to_string(), "look at the program before you look into it")
        }
        Err(_) if path.is_some() => {
            fatal("library", found.unwrap_or_default(), "it has not begun: the loader is still at work, or failed")
        }
        Err(_) => {
            let (found, effect) = why_not_loaded(inspected);
            fatal("library", format!("not loaded: {found}"), effect)
        }
    }
}

fn why_not_loaded(inspected: &Inspected) -> (String, &'static str) {
    let program = PathBuf::from(format!("/proc/{}/exe", inspected.process.pid()));
    if let Some(why) = program_file::unfitness(&program) {
        let name = inspected.process.exe().map_or("the program".into(), |path| path.display().to_string());
        return (format!("{name} {why}"), "a library cannot be preloaded into it: link it with Weir");
    }
    match memory_reader::variable(inspected.process.pid(), "LD_PRELOAD") {
        Some(preload) if contains_weir(&preload) => (
            format!("LD_PRELOAD names it ({})", preload.to_string_lossy()),
            "the loader did not find it, or could not load it: the program's standard error says why",
        ),
        Some(preload) => (
            format!("LD_PRELOAD is {}", preload.to_string_lossy()),
            "start the program by `weir run`, or add libweir.so to LD_PRELOAD",
        ),
        None => ("the process was started without it".into(), "start the program by `weir run`"),
    }
}

fn contains_weir(preload: &OsStr) -> bool {
    preload.as_bytes().windows(b"libweir".len()).any(|part| part == b"libweir")
}

/// Whether the program's allocations come to Weir.
fn serving(inspected: &Inspected, page: &Page) -> Check {
    let resident = inspected.process.stat().map_or(0, |stat| stat.rss * procfs::page_size());
    let handed_out = page.page_bytes.load(Relaxed).saturating_add(page.mapped_bytes.load(Relaxed));
    let found = format!("{} handed out, {} resident", bytes(handed_out), bytes(resident));
    if handed_out == 0 {
        return fatal(
            "allocations",
            found,
            "none has come to Weir: the program has an allocator of its own, or did not allocate yet",
        );
    }
    let other = other_allocator::linked_in(&PathBuf::from(format!("/proc/{}/exe", inspected.process.pid())));
    let other = other.or_else(|| other_allocator::loaded(&inspected.maps));
    if resident >= LARGE && handed_out < resident / SHARE {
        return match other {
            Some(name) => fatal(
                "allocations",
                format!("{found}; the program has {name} in it"),
                "another allocator serves the program: build it without, so that it uses malloc",
            ),
            None => check(
                "allocations",
                false,
                found,
                "most of the memory is not allocated by malloc: mappings of the program's own",
            ),
        };
    }
    check("allocations", true, found, "loaded and serving")
}

fn fast_path(page: &Page) -> Check {
    if page.rseq.load(Relaxed) != 0 {
        return check("fast path", true, "restartable sequences".into(), "per-CPU buckets without locks");
    }
    let effect = "per-CPU buckets behind a lock: about 25 ns more for a malloc and free; `weir doctor` says why";
    check("fast path", false, "no restartable sequences".into(), effect)
}

fn thread(page: &Page) -> Check {
    if page.background.load(Relaxed) != 0 {
        return check("background", true, "the thread runs".into(), "idle memory is released, and pressure is heard");
    }
    let effect = "the program's own threads release idle memory; pressure is not heard";
    check("background", false, "no thread: the heap is still small, or `background` is not 1".into(), effect)
}

fn figures(page: &Page) -> Check {
    let effect = "the same user and root read them: `weir stat PID`";
    let with_root = "root reads them: `weir stat PID`";
    match Opening::of(page.sharing.load(Relaxed)) {
        Some(Opening::Open) => check("statistics", true, "shared".into(), effect),
        Some(Opening::NoThread) => {
            check("statistics", false, "private: there is no background thread".into(), with_root)
        }
        Some(Opening::Off) => check("statistics", false, "private: the setting `publish` is 0".into(), with_root),
        Some(Opening::Sandbox) => check(
            "statistics",
            false,
            "private: the program is in a sandbox of its own (a filter, a root without /proc)".into(),
            with_root,
        ),
        Some(Opening::Refused) => {
            let error = std::io::Error::from_raw_os_error(page.sharing_error.load(Relaxed) as i32);
            check("statistics", false, format!("private: the kernel refused a file in memory ({error})"), with_root)
        }
        None => check("statistics", false, "of another version".into(), with_root),
    }
}

fn channel(page: &Page) -> Check {
    match control::obstacle(page) {
        None => check("control", true, "open".into(), "the same user and root steer it: `weir ctl PID`"),
        Some(why) => check("control", false, format!("closed: {why}"), "settings are those of its start"),
    }
}
