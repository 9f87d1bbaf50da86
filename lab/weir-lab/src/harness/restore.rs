//! What an experiment changed on the machine, and how it is put back whatever happens: at the end of a scope, upon an
//! error, a panic, Ctrl-C or a request to end. Only SIGKILL and a power cut get past it.

use crate::harness::proc_files;
use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rounds of killing, 10 ms each, until no process is left below this one.
const KILL_ROUNDS: u32 = 200;

type RestoreAction = Box<dyn FnOnce() + Send>;

static UNDOS: Mutex<(u64, BTreeMap<u64, RestoreAction>)> = Mutex::new((0, BTreeMap::new()));

/// Set by a signal: from then on one thread restores everything and ends the process, and no other changes anything.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Held while a child is started, and while [`ENDING`] is set: a child is either there when children are killed, or is
/// never started.
static STARTING: Mutex<()> = Mutex::new(());

/// Puts one thing back when dropped.
#[must_use = "dropping the guard puts the change back at once"]
pub struct RestoreGuard(u64);

/// Registers how to put something back. Call it before the change, so that no moment is uncovered.
pub fn on_end(undo: impl FnOnce() + Send + 'static) -> RestoreGuard {
    stop_if_ending();
    let mut undos = lock();
    undos.0 += 1;
    let number = undos.0;
    undos.1.insert(number, Box::new(undo));
    RestoreGuard(number)
}

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        stop_if_ending();
        let undo = lock().1.remove(&self.0);
        if let Some(undo) = undo {
            undo();
        }
    }
}

/// Starts a child that a signal to end is to kill. Without this a thread of which the child was killed could start
/// the next one after the last look for children, which would outlive this process.
pub fn start(command: &mut Command) -> std::io::Result<Child> {
    stop_if_ending();
    let starting = STARTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if ENDING.load(Ordering::Acquire) {
        drop(starting);
        stop_if_ending();
    }
    command.spawn()
}

/// Puts everything back, last change first.
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
        let last = lock().1.pop_last();
        match last {
            Some((_, undo)) => undo(),
            None => return,
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, (u64, BTreeMap<u64, RestoreAction>)> {
    UNDOS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Makes panics, SIGINT, SIGTERM and SIGHUP put everything back, and the signals end what was started: guests, servers,
/// loads. Call it before any thread is started.
pub fn install() -> Result<(), String> {
    // What a child leaves behind as it ends (`timeout` and what it runs) becomes a child of this process.
    // SAFETY: sets an attribute of this process.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } != 0 {
        return Err("cannot adopt what children leave behind".into());
    }
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        everything();
    }));
    // SAFETY: a signal set is plain data; the calls write and read only it. Blocked before any other thread exists,
    // only the thread that waits for them gets the signals. Children start with nothing blocked: std does that.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err("cannot take over signals".into());
        }
        set
    };
    std::thread::spawn(move || wait_for(&set));
    Ok(())
}

fn wait_for(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: waits for a signal of the set and writes its number.
    unsafe { libc::sigwait(set, &mut signal) };
    eprintln!("weir-lab: signal {signal}: putting everything back");
    {
        let _none_is_starting = STARTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ENDING.store(true, Ordering::Release);
    }
    // First, as they use what is put back; and again, as other threads went on until they came to a guard.
    kill_descendants();
    undo_all();
    kill_descendants();
    std::process::exit(128 + signal);
}

/// Kills all processes below this one, and those that they started meanwhile.
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
        for pid in found {
            // SAFETY: a process that descends from this one. Those that end become this one's children, whose numbers stay
            // theirs until they are waited for, below or by the thread that started them.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(10));
        // SAFETY: waits for children that have ended, without a place for their status.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// Run by the test below, as it ends by a signal.
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
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(own);
        command.args(["--exact", "--ignored", "--nocapture", "harness::restore::tests::waits_with_children"]);
        // The test's thread is not the process's first, which would take the signal: it is blocked for all of them.
        // SAFETY: between fork and exec only a system call is made, with a set that is plain data.
        unsafe {
            command.pre_exec(|| {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGTERM);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                Ok(())
            });
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        assert!(lines.by_ref().any(|line| line.unwrap() == "ready"));
        // SAFETY: a child that has not been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        // The children have the same standard error: it ends with the last of them.
        assert_eq!(lines.map(Result::unwrap).filter(|line| line.contains("signal 15")).count(), 1);
        assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    }
}
