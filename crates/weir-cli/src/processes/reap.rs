//! Waiting for the program, and for all processes that become children of this one.
//!
//! When a process ends, the kernel makes its children those of the nearest subreaper above them, which this process is
//! (`PR_SET_CHILD_SUBREAPER`). So a daemon that the program started stays in the tree that is watched. In a container, where this
//! process is PID 1 and gets all orphans, none stays behind as a zombie.

use crate::processes::signals;
use crate::processes::tree;

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub enum ProgramEnd {
    Exited(i32),
    Killed(i32),
}

/// The program's end, and the largest resident set of it, of a process that it waited for, or of an orphan that ended before.
#[derive(Clone, Copy, Debug)]
pub struct ReapedProgram {
    pub end: ProgramEnd,
    pub peak: u64,
}

/// Makes this process the subreaper. Kernels before 3.4 refuse: then daemons are not watched.
pub fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Forwards signals until the program has ended, and, with `all`, until no process of its tree is left.
pub fn wait(program: i32, all: bool, tree: &tree::ProcessTree, caught: &mut signals::CaughtSignals) -> ReapedProgram {
    let (mut seen, mut peak) = (Seen::default(), 0);
    // First without waiting: it may have ended before its SIGCHLD could be caught.
    let mut origins: Vec<_> = caught.pending().collect();
    loop {
        // The program may have ended before the signal that came with it: it goes to those that are left, not to a zombie.
        seen = reap(program, seen.ended, tree, &mut peak);
        // A stop that came with the program's was the whole group's.
        let is_news = |signal| signal != libc::SIGCHLD && !(signal == libc::SIGTSTP && seen.stopped.is_some());
        origins.iter().filter(|origin| is_news(origin.signal)).for_each(|origin| match seen.ended {
            None => signals::forward(origin, &[program]),
            // Where `/proc` shows an outer PID namespace, its numbers are not ours to send to.
            Some(_) if tree::own_pid() == Some(std::process::id() as i32) => signals::forward(origin, &tree.pids()),
            Some(_) => {}
        });
        if let Some(end) = seen.ended
            && (!all || !seen.has_children || is_empty(tree))
        {
            return ReapedProgram { end, peak };
        }
        // What goes on again does not stop this process.
        let goes_on = origins.iter().any(|origin| origin.signal == libc::SIGCONT);
        origins = match seen.stopped {
            Some(signal) if !goes_on => {
                signals::stop_too(signal);
                // Now it goes on: a stop that came before is over.
                caught.pending().filter(|origin| origin.signal != libc::SIGTSTP).collect()
            }
            _ => caught.wait().collect(),
        };
    }
}

/// Whether no process of the tree is left. Read twice: a process that ends during a read may hide others in that one.
fn is_empty(tree: &tree::ProcessTree) -> bool {
    tree::own_pid().is_some() && tree.pids().is_empty() && tree.pids().is_empty()
}

/// What became of the children.
#[derive(Default)]
struct Seen {
    /// The program's end.
    ended: Option<ProgramEnd>,
    /// The signal that stopped the program just now.
    stopped: Option<i32>,
    has_children: bool,
}

/// Waits for all children that changed state, without blocking; the program may have `ended` before. The largest resident set of
/// those of the tree that ended is noted.
///
/// A program that was waited for is gone, and its number may be another process's: that one's end is not the program's.
fn reap(program: i32, ended: Option<ProgramEnd>, tree: &tree::ProcessTree, peak: &mut u64) -> Seen {
    let mut seen = Seen { ended, ..Seen::default() };
    loop {
        let mut status = 0;
        // SAFETY: the kernel fills a status and a usage record of their types.
        let (pid, usage) = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            let flags = libc::WNOHANG | libc::WUNTRACED;
            (libc::wait4(-1, &raw mut status, flags, &raw mut usage), usage)
        };
        if pid <= 0 {
            return Seen { has_children: pid == 0, ..seen };
        }
        if !libc::WIFSTOPPED(status) && tree.reaped(pid) {
            *peak = (*peak).max(usage.ru_maxrss as u64 * 1024);
        }
        if pid != program || seen.ended.is_some() {
            continue;
        }
        if libc::WIFEXITED(status) {
            seen.ended = Some(ProgramEnd::Exited(libc::WEXITSTATUS(status)));
        } else if libc::WIFSIGNALED(status) {
            seen.ended = Some(ProgramEnd::Killed(libc::WTERMSIG(status)));
        } else if libc::WIFSTOPPED(status) {
            seen.stopped = Some(libc::WSTOPSIG(status));
        }
    }
}
