//! Whether a running process has Weir and is served by it, and why not.

use super::check::Check;
use super::{other_allocator, pymalloc};
use crate::base::failure::{Failure, Kind};
use crate::base::units::bytes;
use crate::inspect::control::{self, WHY_NO_THREAD};
use crate::inspect::locate;
use crate::inspect::memory_reader;
use crate::inspect::page::{Inspected, Missing, Page, rights};
use crate::processes::program_file;
use procfs::process::Process;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

/// The flag of the kernel's own threads (`PF_KTHREAD` in Linux's sched.h).
const THREAD_OF_KERNEL: u32 = 0x0020_0000;
/// Resident bytes from which on it is told that little of them is Weir's.
const LARGE: u64 = 16 << 20;
/// The share of them below which that is little: 1 / SHARE.
const SHARE: u64 = 20;

/// Looks at everything.
pub(super) fn checks(pid: i32) -> Result<Vec<Check>, Failure> {
    let inspected = match Inspected::new(pid) {
        Ok(inspected) => inspected,
        Err(why) => return unseen(pid, &why).map(|check| vec![check]),
    };
    let page = inspected.page();
    if let Err(why @ (Missing::NoProcess | Missing::TooManyFiles)) = &page {
        return unseen(pid, why).map(|check| vec![check]);
    }
    let mut checks = vec![library(&inspected, page.as_ref())];
    checks.extend(rest(pid));
    let Ok(page) = page else { return Ok(checks) };
    checks.push(serving(&inspected, &page));
    if pymalloc::serves(pid, &inspected.maps, inspected.process.exe().ok().as_deref()) {
        let found = format!("{} serves objects of up to 512 bytes", pymalloc::NAME.trim_end_matches(','));
        checks.push(Check::of("python", false, found, pymalloc::CURE));
    }
    checks.extend([fast_path(&page), thread(&page), figures(&page), channel(&page)]);
    Ok(checks)
}

/// A process that cannot be looked into: what is known of it, or why nothing is.
fn unseen(pid: i32, why: &Missing) -> Result<Check, Failure> {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
    if let (Missing::NotAllowed, Ok(owner)) = (why, owner) {
        let say = format!("process {pid} may not be looked into: it is user {owner}'s, or guards itself: {}", rights());
        return Err(Failure::of(Kind::Refused, say));
    }
    if *why == Missing::TooManyFiles {
        return Err(why.of(pid));
    }
    let stat = Process::new(pid).and_then(|process| process.stat());
    let stat = stat.map_err(|_| Failure::of(Kind::NotFound, format!("there is no process {pid}: check its number")))?;
    Ok(if stat.flags & THREAD_OF_KERNEL != 0 {
        Check::fatal(
            "process",
            format!("{pid} is a thread of the kernel's"),
            "it has no memory of its own, and no malloc",
        )
    } else {
        Check::fatal("process", format!("{pid} has ended"), "its parent has not heard of it yet: its memory is gone")
    })
}

/// That a process does nothing now, if it does not: it is not to be steered, and neither measures nor releases.
fn rest(pid: i32) -> Option<Check> {
    let found = control::standstill(pid)?;
    Some(Check::of("process", false, found, "it neither answers nor releases anything until it goes on"))
}

fn library(inspected: &Inspected, page: Result<&Page, &Missing>) -> Check {
    const NAME: &str = "library";
    let path = locate::library(&inspected.maps);
    let found = path.as_ref().map_or("built into the program".into(), |path| format!("loaded: {}", path.display()));
    match page {
        Ok(_) => Check::of(NAME, true, found, "the process has Weir"),
        Err(Missing::NotShared) => {
            let found = format!("{found}; its figures are private (a small heap, or `publish` or `background` is 0)");
            Check::of(NAME, false, found, rights())
        }
        Err(Missing::OtherVersion(version)) => {
            let found = format!("of another version: its statistics are of version {version}");
            Check::of(NAME, false, found, "use the `weir` of the same release")
        }
        Err(why @ Missing::NotAnswering) => {
            Check::fatal(NAME, why.to_string(), "look at the program before you look into it")
        }
        Err(_) if path.is_some() => {
            Check::fatal(NAME, found, "it has not begun: the loader is still at work, or failed")
        }
        Err(_) => {
            let (found, effect) = why_not_loaded(inspected);
            Check::fatal(NAME, format!("not loaded: {found}"), effect)
        }
    }
}

fn why_not_loaded(inspected: &Inspected) -> (String, &'static str) {
    if let Some(why) = program_file::asked(inspected.process.pid(), program_file::unfitness_of) {
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
    const NAME: &str = "allocations";
    let resident = inspected.process.stat().map_or(0, |stat| stat.rss * procfs::page_size());
    let handed_out = page.page_bytes.load(Relaxed).saturating_add(page.mapped_bytes.load(Relaxed));
    let found = format!("{} handed out, {} resident", bytes(handed_out), bytes(resident));
    if handed_out == 0 {
        let effect = "none has come to Weir: the program has an allocator of its own, or did not allocate yet";
        return Check::fatal(NAME, found, effect);
    }
    if resident < LARGE || handed_out >= resident / SHARE {
        return Check::of(NAME, true, found, "loaded and serving");
    }
    let linked_in = other_allocator::linked_into(inspected.process.pid());
    match linked_in.or_else(|| other_allocator::loaded(&inspected.maps).map(str::to_owned)) {
        Some(name) => {
            let effect = "another allocator serves the program: build it without, so that it uses malloc";
            Check::fatal(NAME, format!("{found}; the program has {name} in it"), effect)
        }
        None => {
            let effect = "most of the memory is not allocated by malloc: mappings of the program's own";
            Check::of(NAME, false, found, effect)
        }
    }
}

fn fast_path(page: &Page) -> Check {
    if page.rseq.load(Relaxed) != 0 {
        return Check::of("fast path", true, "restartable sequences", "per-CPU buckets without locks");
    }
    let effect = "per-CPU buckets behind a lock: about 25 ns more for a malloc and free; `weir doctor` says why";
    Check::of("fast path", false, "no restartable sequences", effect)
}

fn thread(page: &Page) -> Check {
    if page.background.load(Relaxed) != 0 {
        let effect = "idle memory is released, and pressure is heard";
        return Check::of("background", true, "the thread runs", effect);
    }
    let effect = "the program's own threads release idle memory; pressure is not heard";
    Check::of("background", false, format!("no thread: {WHY_NO_THREAD}"), effect)
}

fn figures(page: &Page) -> Check {
    let (sharing, error) = (page.sharing.load(Relaxed), page.sharing_error.load(Relaxed));
    match control::closed(sharing, error, "publish", "a file in memory") {
        None => Check::of("statistics", true, "shared", "the same user and root read them: `weir stat PID`"),
        Some(why) => {
            let effect = "root, and who may trace the process, reads them: `weir stat PID`";
            Check::of("statistics", false, format!("private: {why}"), effect)
        }
    }
}

fn channel(page: &Page) -> Check {
    match control::obstacle(page) {
        None => {
            Check::of("control", true, "open", "its own user and root of its user namespace steer it: `weir ctl PID`")
        }
        Some(why) => Check::of("control", false, format!("closed: {why}"), "settings are those of its start"),
    }
}
