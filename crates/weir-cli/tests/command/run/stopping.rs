//! `weir run` where its program is stopped, and goes on.

use super::bench::{Bench, Running, send, start, wait_until};
use crate::subject::{hold, terminal, wait_for};

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

fn state(pid: u32) -> char {
    procfs::process::Process::new(pid as i32).and_then(|process| process.stat()).unwrap().state
}

/// A session by its leader. All of it ends with this, in whichever process groups it is.
struct Session(Running);

impl Drop for Session {
    fn drop(&mut self) {
        let leader = self.0.id() as i32;
        let is_members =
            |stat: &procfs::process::Stat| stat.session == leader && stat.pid != leader && stat.state != 'Z';
        // A process may fork while the others are killed. No longer than that, as the test may have failed.
        for _ in 0..100 {
            let all = procfs::process::all_processes().into_iter().flatten().flatten();
            let left: Vec<_> = all.filter_map(|process| process.stat().ok()).filter(is_members).collect();
            if left.is_empty() {
                return;
            }
            for stat in left {
                // SAFETY: a signal to a process of a session that this test made.
                unsafe { libc::kill(stat.pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// `weir` as the job of a shell, which leads a session of its own and could continue it.
struct Job {
    _session: Session,
    weir: u32,
    program: u32,
}

impl Job {
    /// On the session's terminal, if there is one. The program ends at `SIGUSR1`, or after ten minutes.
    fn start(bench: &Bench, terminal: Option<&std::fs::File>) -> Self {
        let folder = tempfile::tempdir_in(&bench.dir).unwrap();
        let ready = folder.path().join("ready").display().to_string();
        let script = format!(
            "trap 'exit' USR1; echo $PPID $$ >{ready}.new; mv {ready}.new {ready}; for i in {{1..12000}}; do sleep 0.05; done"
        );
        let mut shell = Command::new("bash");
        shell.args(["-c", "set -m; \"$@\" </dev/null & read", "shell", env!("CARGO_BIN_EXE_weir"), "run"]);
        shell.args(["--quiet", "--", "bash", "-c", &script]).env("WEIR_LIB", &bench.library).env_remove("LD_PRELOAD");
        shell.stdin(terminal.map_or_else(Stdio::piped, |inner| inner.try_clone().unwrap().into()));
        let has_terminal = terminal.is_some();
        // SAFETY: between fork and exec only the kernel is called.
        unsafe {
            shell.pre_exec(move || {
                for signal in [libc::SIGTSTP, libc::SIGUSR1] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                rustix::process::setsid()?;
                if has_terminal {
                    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                }
                Ok(())
            });
        }
        let _session = Session(Running(shell.spawn().unwrap()));
        let line = wait_for("the program to be ready", || std::fs::read_to_string(&ready).ok());
        let numbers: Vec<u32> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Self { _session, weir: numbers[0], program: numbers[1] }
    }

    /// To `weir` and its program, as a shell sends it.
    fn send_both(&self, signal: i32) {
        // SAFETY: signals to the group of a job that this test made.
        assert_eq!(unsafe { libc::kill(-(self.weir as i32), signal) }, 0);
    }

    fn is_stopped(&self) -> bool {
        [self.weir, self.program].iter().all(|pid| state(*pid) == 'T')
    }

    /// Neither is stopped, and the program gets what `weir` is sent.
    fn ends(self) {
        send(libc::SIGUSR1, self.weir);
        let stat = || procfs::process::Process::new(self.weir as i32).and_then(|process| process.stat());
        wait_until("weir to end", || stat().map_or(true, |stat| stat.state == 'Z'));
    }
}

#[test]
fn stopping_and_going_on() {
    let Some(bench) = Bench::new() else { return };
    // Which of the two hears of it first.
    for is_weir in [true, false] {
        let (_outer, inner) = terminal();
        let job = Job::start(&bench, Some(&inner));
        send(libc::SIGTSTP, if is_weir { job.weir } else { job.program });
        wait_until("weir to stop as its program did", || job.is_stopped());
        job.send_both(libc::SIGCONT);
        job.ends();
    }
}

/// Both have the signal before `weir` has looked.
#[test]
fn a_stop_that_both_were_sent_is_not_sent_once_more() {
    let Some(bench) = Bench::new() else { return };
    let (_outer, inner) = terminal();
    let job = Job::start(&bench, Some(&inner));
    let Some(held) = hold(job.weir as i32) else { return };
    job.send_both(libc::SIGTSTP);
    wait_until("the program to stop", || state(job.program) == 'T');
    drop(held);
    wait_until("weir to stop as its program did", || job.is_stopped());
    job.send_both(libc::SIGCONT);
    job.ends();
}

/// Without a terminal no shell waits for the job to stop, and none continues it. Several times, as `weir` may miss one.
#[test]
fn without_a_terminal_weir_does_not_stop_as_its_program_does() {
    let Some(bench) = Bench::new() else { return };
    let job = Job::start(&bench, None);
    for _ in 0..20 {
        send(libc::SIGTSTP, job.program);
        wait_until("the program to stop", || state(job.program) == 'T');
        send(libc::SIGCONT, job.program);
        wait_until("the program to go on", || state(job.program) != 'T');
    }
    job.ends();
}

/// As whoever slows a program down does it: several times, as `weir` may miss one.
#[test]
fn a_program_that_another_stops_and_continues_ends_as_ever() {
    let Some(bench) = Bench::new() else { return };
    let pid = bench.dir.path().join("pid");
    let script = format!("echo $$ >{}; trap 'exit 8' USR1; READY; while :; do sleep 0.05; done", pid.display());
    let mut child = start(&bench, &["--quiet"], &script);
    let program: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    for _ in 0..20 {
        send(libc::SIGSTOP, program);
        wait_until("the program to stop", || state(program) == 'T');
        send(libc::SIGCONT, program);
        wait_until("the program to go on", || state(program) != 'T');
    }
    send(libc::SIGUSR1, child.id());
    assert_eq!(child.wait().code(), Some(8));
}

/// Else a stop could be half handled by another thread, while the first one stops the process and is continued.
#[test]
fn no_thread_but_the_first_takes_signals() {
    let Some(bench) = Bench::new() else { return };
    let child = start(&bench, &["--quiet"], "READY; while :; do sleep 0.05; done");
    let process = procfs::process::Process::new(child.id() as i32).unwrap();
    let blocked = |is_first: bool| {
        let tasks = process.tasks().unwrap().flatten().filter(move |task| (task.tid == task.pid) == is_first);
        tasks.flat_map(|task| task.status()).map(|status| status.sigblk >> (libc::SIGTSTP - 1) & 1 == 1)
    };
    wait_until("the watcher to begin", || blocked(false).next().is_some());
    assert!(blocked(false).all(|is_blocked| is_blocked));
    wait_until("the first thread to take signals", || blocked(true).eq([false]));
}
