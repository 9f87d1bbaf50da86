//! Where messages go, and where they must not.
//!
//! Number 2 need not be standard error. A daemon closes it, and the next file that it opens has the number: its data, or a
//! connection. Text in there destroys what is there. So the file is remembered as the program starts. Later a message goes
//! to this file, or to what is meant for people and logs: a terminal, a pipe, or a regular file that is only appended to
//! (`O_APPEND`). What else has the number gets nothing.
//!
//! A message waits for no reader of a socket, such as the system's journal: what it has no room for is lost. And it raises no
//! signal: one that nobody reads, or that a file has no room for, neither ends the program nor stops it.

use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::os::fd::{self, FileKind, Stat};
use crate::os::file::path::FixedPath;
use crate::os::file::socket;
use crate::os::process::{getpid, threads_file};
use crate::os::signals;
use crate::os::tasks;
use crate::os::thread_block::is_own_thread;

const NUMBER: i32 = 2;

/// Device and number of the file at the start; zeros, which no file has, if there was none.
static AT_START: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The start was noted. What is said before that is said at the start.
static IS_NOTED: AtomicBool = AtomicBool::new(false);

/// Remembers standard error. To be called before the program's own code runs, or as early as can be.
pub(crate) fn note_start() {
    let (device, number) = fd::fstat(NUMBER).map_or((0, 0), |found| found.id);
    AT_START[0].store(device, Relaxed);
    AT_START[1].store(number, Relaxed);
    IS_NOTED.store(true, Release);
}

fn is_as_at_start(found: &Stat) -> bool {
    !IS_NOTED.load(Acquire) || found.id == (AT_START[0].load(Relaxed), AT_START[1].load(Relaxed))
}

/// Whether text may be written to a file that has the number now; `flags` are those of the open file.
fn may_have_text(found: &Stat, flags: impl FnOnce() -> Option<u32>) -> bool {
    is_as_at_start(found)
        || match found.kind {
            FileKind::Fifo => true,
            FileKind::CharDevice => found.is_screen(),
            FileKind::Regular => flags().is_some_and(|flags| flags & fd::O_APPEND != 0),
            FileKind::Socket | FileKind::Other => false,
        }
}

/// Writes a line where it may be written.
pub(super) fn write(line: &[u8]) {
    if is_own_thread() {
        return write_elsewhere(line);
    }
    let Ok(found) = fd::fstat(NUMBER) else { return };
    if may_have_text(&found, || fd::flags(NUMBER).ok()) {
        put(NUMBER, &found, line);
    }
}

fn put(file: i32, found: &Stat, line: &[u8]) {
    let _ = match found.kind {
        FileKind::Socket => socket::send(file, line),
        _ => signals::without_write_signals(|| fd::write(file, line)).map(drop),
    };
}

/// On a thread of Weir's own. It has another descriptor table, which keeps none of the program's files open: their other
/// ends would wait for it.
fn write_elsewhere(line: &[u8]) {
    let named = named();
    let file = match &named {
        Some((thread, path, found)) => open(*thread, path, found),
        // No `/proc`.
        None => threads_file(getpid(), NUMBER).ok(),
    };
    let Some(file) = file else { return };
    // The program may have put another one there meanwhile.
    if let Ok(now) = fd::fstat(file)
        && named.is_none_or(|(_, _, found)| found.id == now.id)
        && may_have_text(&now, || fd::flags(file).ok())
    {
        put(file, &now, line);
    }
    let _ = fd::close(file);
}

/// A thread of the program's, a path to the file in its table, and which it is. The thread is the main one. Where that has ended
/// before others, it is another one that still has the file of the start. So it is none of Weir's: what these have open is
/// their own.
fn named() -> Option<(u32, FixedPath, Stat)> {
    of_thread(getpid()).or_else(|| {
        let has_it = |thread| of_thread(thread).is_some_and(|(_, _, found)| is_as_at_start(&found));
        of_thread(tasks::first_listed(&has_it).ok()??)
    })
}

/// The file as a thread's table has it.
fn of_thread(thread: u32) -> Option<(u32, FixedPath, Stat)> {
    let path = FixedPath::format(format_args!("/proc/self/task/{thread}/fd/{NUMBER}"))?;
    let found = fd::stat(path.as_c_str()).ok()?;
    Some((thread, path, found))
}

/// A descriptor for what may be written to. A write to a full pipe or a stopped terminal would block: these are opened anew, for
/// writes that do not. A socket cannot be opened by its name, and another way of opening a file says nothing of the program's.
fn open(thread: u32, path: &FixedPath, found: &Stat) -> Option<i32> {
    const ANEW: u32 = fd::O_WRONLY | fd::O_APPEND | fd::O_NONBLOCK | fd::O_NOCTTY;
    let by_name = || fd::open(path.as_c_str(), ANEW);
    let is_known = is_as_at_start(found) || found.kind == FileKind::Fifo || found.is_screen();
    match found.kind {
        FileKind::Regular | FileKind::Fifo | FileKind::CharDevice if is_known => {
            by_name().or_else(|_| threads_file(thread, NUMBER)).ok()
        }
        FileKind::Regular => threads_file(thread, NUMBER).ok(),
        FileKind::Socket if is_known => threads_file(thread, NUMBER).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::file::socket::Bell;

    /// Whether a file that is open now may have text.
    fn may(file: i32) -> bool {
        let may = may_have_text(&fd::fstat(file).unwrap(), || fd::flags(file).ok());
        fd::close(file).unwrap();
        may
    }

    #[test]
    fn what_came_since_the_start_gets_text_only_if_it_is_a_log() {
        note_start();
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
        assert!(!may(fd::open(&name, fd::O_RDWR).unwrap()));
        assert!(may(fd::open(&name, fd::O_WRONLY | fd::O_APPEND).unwrap()));
        let (bell, end) = Bell::open().unwrap();
        assert!(!may(end), "a connection");
        drop(bell);
        assert!(!may(fd::eventfd().unwrap()));
        if let Ok(found) = fd::fstat(NUMBER) {
            assert!(may_have_text(&found, || None), "the file of the start");
        }
    }
}
