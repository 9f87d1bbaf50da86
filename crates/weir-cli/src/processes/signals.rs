//! Signals that are forwarded to the program, and ending as the program ended; signals that end a command which has changed
//! something.

use libc::{SIGPWR, SIGSTKFLT};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::*;
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Signals that this process changes for itself, and whether they were ignored when it began: `SIGPIPE` is ignored by Rust's
/// runtime, and reset in children by its standard library; `SIGCHLD` is caught.
static CHANGED: [(i32, AtomicBool); 2] = [(SIGPIPE, AtomicBool::new(false)), (SIGCHLD, AtomicBool::new(false))];

// Before Rust's runtime begins.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_IGNORED: extern "C" fn() = note_ignored;

extern "C" fn note_ignored() {
    CHANGED.iter().for_each(|(signal, was_ignored)| was_ignored.store(is_ignored(*signal), Relaxed));
}

/// In a child, before it executes the program: ignores what was ignored. All that it calls is async-signal-safe.
pub fn ignore_as_begun() {
    for (signal, _) in CHANGED.iter().filter(|(_, was_ignored)| was_ignored.load(Relaxed)) {
        // SAFETY: sets an action of this process, which runs no other code of its own any more.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// All that can be caught and is not a fault of this process itself, but for those of real time ([`real_time`]).
const FORWARDED: [i32; 18] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGWINCH, SIGCONT, SIGTSTP,
    SIGURG, SIGIO, SIGXCPU, SIGXFSZ, SIGPWR, SIGSTKFLT,
];

/// The signals of real time, which libc leaves to programs: what ends a service may be one of them (systemd's `KillSignal`).
fn real_time() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// The signals caught, with their senders.
pub type CaughtSignals = SignalsInfo<WithOrigin>;

/// Catches signals to forward, and `SIGCHLD`. What is ignored (as under `nohup`) stays so, for the program as well.
pub fn catch() -> std::io::Result<CaughtSignals> {
    let mut caught: Vec<i32> = all().filter(|&signal| !is_ignored(signal)).collect();
    caught.push(SIGCHLD);
    SignalsInfo::new(caught)
}

fn all() -> impl Iterator<Item = i32> {
    FORWARDED.into_iter().chain(real_time())
}

/// Does `work` with all signals blocked on this thread. A thread that it begins keeps them so, and handles none.
pub fn blocked<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: a set is plain numbers.
    let [mut all, mut before] = [unsafe { std::mem::zeroed::<libc::sigset_t>() }; 2];
    // SAFETY: acts on this thread's signals only; the sets are values of their type.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let done = work();
    // SAFETY: as before; the set is the one that was replaced.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    done
}

/// After the program's end there is nothing to forward to. From now on a signal ends this process, which may wait for a reader
/// of what it writes.
pub fn release() {
    for signal in ending() {
        // SAFETY: sets an action of this process; no code of its own counts on the one before.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// The signals by which people and services end a program.
pub const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Those of [`ENDING`] that are not ignored (as under `nohup`).
fn ending() -> impl Iterator<Item = i32> {
    ENDING.into_iter().filter(|&signal| !is_ignored(signal))
}

/// Signals that are only noted.
#[derive(Clone)]
pub struct Noted {
    /// The last one; 0: none.
    signal: Arc<AtomicUsize>,
}

impl Noted {
    /// Notes these from now on.
    pub fn of(signals: impl IntoIterator<Item = i32>) -> std::io::Result<Self> {
        let it = Self { signal: Arc::default() };
        for signal in signals {
            flag::register_usize(signal, Arc::clone(&it.signal), signal as usize)?;
        }
        Ok(it)
    }

    /// Notes what would end this process, up to [`release`], so that what it has changed elsewhere can be put back. A second one
    /// by the keyboard ends it. The others come twice by themselves: `SIGHUP` of the kernel and of a shell, `SIGTERM` of `timeout`.
    pub fn ending() -> std::io::Result<Self> {
        let it = Self::of(ending())?;
        let was_pressed = Arc::new(AtomicBool::new(false));
        for signal in ending().filter(|signal| matches!(*signal, SIGINT | SIGQUIT)) {
            // In this order: what ends it is the flag of one before.
            flag::register_conditional_default(signal, Arc::clone(&was_pressed))?;
            flag::register(signal, Arc::clone(&was_pressed))?;
        }
        Ok(it)
    }

    /// The one that has come last.
    pub fn signal(&self) -> Option<i32> {
        Some(self.signal.load(SeqCst) as i32).filter(|&signal| signal != 0)
    }

    /// Whether one has come; told once.
    pub fn take(&self) -> bool {
        self.signal.swap(0, SeqCst) != 0
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: with a null action the call changes nothing; the kernel writes the present one to a value of its type.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Forwards a signal, unless the programs have it already.
pub fn forward(origin: &Origin, programs: &[i32]) {
    if matches!(origin.cause, Cause::Kernel) && is_groups(origin.signal) {
        return;
    }
    for &program in programs {
        // SAFETY: sends a signal to a child that has not been waited for, or to a process that descends from one. So its
        // number is not another's.
        unsafe { libc::kill(program, origin.signal) };
    }
}

/// Whether the kernel sends a signal to the whole process group, as it does for a terminal's keys and size. Not so a timer's
/// that was set before this program was executed (`alarm`), nor a terminal's end, of which it tells the session's leader.
fn is_groups(signal: i32) -> bool {
    match signal {
        SIGALRM | SIGVTALRM | SIGPROF => false,
        // SAFETY: both ask for a number.
        SIGHUP | SIGCONT => unsafe { libc::getsid(0) != libc::getpid() },
        _ => true,
    }
}

/// Stops this process if job control stopped the program, so that a shell sees the job stopped, and continues it. `SIGSTOP` is no
/// part of it: who sends it to the program alone has that alone go on. So has who stops a program that is no job of a shell's.
pub fn stop_too(signal: i32) {
    if !matches!(signal, SIGTSTP | SIGTTIN | SIGTTOU) || !is_shells_job() {
        return;
    }
    // SAFETY: sends a signal to this process.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Whether this process may be a job of a shell's: there is a terminal, and the group is not that of the session's leader.
fn is_shells_job() -> bool {
    // SAFETY: both ask for a number.
    let is_leaders = unsafe { libc::getpgrp() == libc::getsid(0) };
    !is_leaders && open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// Ends this process by the signal that ended the program, without a second core dump. Returns if it does not work.
pub fn die_of(signal: i32) {
    // Not the limit of a core's size: a kernel that hands cores to a program does not heed it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: acts on this process's signals only; the set is a value of its type.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
