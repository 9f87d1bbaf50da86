//! Changes that an experiment made on the machine, and how they are put back whatever happens. That is at the end of a
//! scope, upon an error, a panic, Ctrl-C or a request to end. Only SIGKILL and a power cut get past it.

use crate::harness::proc_files;
use anyhow::Result;
use nix::sys::signal::{self, SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const KILL_ROUNDS: u32 = 200;

type RestoreAction = Box<dyn FnOnce() + Send>;

static UNDOS: Mutex<(u64, BTreeMap<u64, RestoreAction>)> = Mutex::new((0, BTreeMap::new()));
/// A signal came: whoever would go on waits for the end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Held while a child is started, so that none is started behind the back of the one who kills all.
static STARTING: Mutex<()> = Mutex::new(());

/// Puts a change back when it is dropped.
#[must_use = "dropping the guard puts the change back at once"]
pub struct RestoreGuard(u64);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `undo` run at the end of the guard or of the program, whichever is first. Registered before the change is made.
pub fn on_end(undo: impl FnOnce() + Send + 'static) -> RestoreGuard {
    stop_if_ending();
    let mut undos = lock(&UNDOS);
    undos.0 += 1;
    let number = undos.0;
    undos.1.insert(number, Box::new(undo));
    RestoreGuard(number)
}

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        stop_if_ending();
        let undo = lock(&UNDOS).1.remove(&self.0);
        undo.into_iter().for_each(|undo| undo());
    }
}

/// Starts a child, unless all is being put back.
pub fn start(command: &mut Command) -> std::io::Result<Child> {
    let starting = lock(&STARTING);
    if ENDING.load(Ordering::Acquire) {
        drop(starting);
        stop_if_ending();
    }
    command.spawn()
}

/// Puts everything back, the last change first.
pub fn everything() {
    stop_if_ending();
    undo_all();
}

fn stop_if_ending() {
    while ENDING.load(Ordering::Acquire) {
        std::thread::park();
    }
}

fn undo_all() {
    loop {
        let last = lock(&UNDOS).1.pop_last();
        match last {
            Some((_, undo)) => undo(),
            None => return,
        }
    }
}

/// Takes over signals and panics. Called first, while there is one thread: signals are blocked in all that come.
pub fn install() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        everything();
    }));
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block()?;
    std::thread::spawn(move || {
        let signal = signals.wait().unwrap_or(Signal::SIGTERM) as i32;
        eprintln!("weir-lab: signal {signal}: putting everything back");
        {
            let _none_is_starting = lock(&STARTING);
            ENDING.store(true, Ordering::Release);
        }
        kill_descendants();
        undo_all();
        kill_descendants(); // What the undoing left behind.
        std::process::exit(128 + signal);
    });
    Ok(())
}

/// Kills a process.
pub fn kill(pid: u32) {
    send(pid, Signal::SIGKILL);
}

/// Sends a signal; whether there was somebody to take it.
pub fn send(pid: u32, signal: Signal) -> bool {
    signal::kill(Pid::from_raw(pid as i32), signal).is_ok()
}

/// Kills all that was started, and what that started: it comes to this process when its parents are gone.
fn kill_descendants() {
    for _ in 0..KILL_ROUNDS {
        let mut found = proc_files::children(std::process::id());
        let mut at = 0;
        while let Some(&pid) = found.get(at) {
            let below = proc_files::children(pid).into_iter().filter(|pid| !found.contains(pid)).collect::<Vec<_>>();
            found.extend(below);
            at += 1;
        }
        if found.is_empty() {
            return;
        }
        found.into_iter().for_each(kill);
        std::thread::sleep(Duration::from_millis(10));
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status != WaitStatus::StillAlive) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    #[test]
    #[ignore = "run by the test below, in a process of its own"]
    fn waits_with_children() {
        install().unwrap();
        let mut shell = Command::new("timeout").args(["100", "sh", "-c", "sleep 100 & sleep 100"]).spawn().unwrap();
        let all = || proc_files::children(shell.id()).iter().flat_map(|&pid| proc_files::children(pid)).count();
        while all() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        eprintln!("ready");
        let _ = shell.wait();
        std::thread::sleep(Duration::from_secs(100));
    }

    #[test]
    fn a_request_to_end_kills_what_was_started() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", "harness::machine::restore::tests::waits_with_children"]);
        // Blocked from the start: the test harness has threads that would take the signal.
        // SAFETY: blocks a signal in the child.
        unsafe { command.pre_exec(|| SigSet::from(Signal::SIGTERM).thread_block().map_err(Into::into)) };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        assert!(lines.by_ref().any(|line| line.unwrap() == "ready"));
        assert!(send(child.id(), Signal::SIGTERM));
        // The pipe ends when all of them are gone.
        assert_eq!(lines.map(Result::unwrap).filter(|line| line.contains("signal 15")).count(), 1);
        assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    }
}
