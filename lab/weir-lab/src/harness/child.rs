//! Starts a program under an allocator, talks with it, and measures it from outside.

use crate::harness::machine::cgroup::Cgroup;
use crate::harness::machine::owner;
use crate::harness::machine::restore::{self, kill};
use crate::harness::proc_files::{ProcessMemory, memory};
use crate::peers::Allocator;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Variables that would change an allocator.
const NOT_INHERITED: [&str; 6] = [
    "LD_PRELOAD",
    "MALLOC_CONF",
    "MALLOC_ARENA_MAX",
    "GLIBC_TUNABLES",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
];
const START_LIMIT: Duration = Duration::from_secs(30);
const PHASE_LIMIT: Duration = Duration::from_secs(120);

/// A program of this workspace's, which lies beside this one.
pub fn beside(name: &str) -> Result<PathBuf> {
    let found = std::env::current_exe()?.with_file_name(name);
    ensure!(found.exists(), "{name} is not beside weir-lab: cargo build --release");
    Ok(found)
}

/// A program of the system's.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.exists())
}

/// A command of the system's.
pub fn system(program: &str) -> Result<Command> {
    find(program).map(Command::new).with_context(|| format!("{program} is not here"))
}

/// Runs a command of the system's to its good end, in a minute at most; what it said.
pub fn run_system(program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
    let path = find(program).with_context(|| format!("{program} is not here"))?;
    let mut timeout = Command::new("timeout");
    let Output { status, stdout, stderr } =
        timeout.arg("60").arg(path).args(arguments).stdin(Stdio::null()).output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_string();
    if !status.success() {
        bail!("{program}: {}", text(stderr).lines().next().unwrap_or("it failed"));
    }
    Ok(text(stdout))
}

/// A command under an allocator.
pub fn under(program: impl AsRef<OsStr>, allocator: &Allocator) -> Command {
    let mut command = Command::new(program);
    NOT_INHERITED.iter().for_each(|name| _ = command.env_remove(name));
    command.envs(allocator.env.iter().copied());
    command.envs(allocator.preload.iter().map(|object| ("LD_PRELOAD", object)));
    command
}

/// A load program, with its words, under an allocator.
pub fn load(allocator: &Allocator, words: &str) -> Result<Command> {
    let mut command = under(beside("weir-lab-load")?, allocator);
    command.args(words.split_whitespace());
    Ok(command)
}

/// A load program that uses no allocator to speak of.
pub fn plain_load(words: &str) -> Result<Command> {
    load(&Allocator::none(), words)
}

/// A child that is killed when it goes.
pub struct KilledOnDrop(pub Child);

impl KilledOnDrop {
    pub fn start(mut command: Command, what: &str) -> Result<KilledOnDrop> {
        owner::mark(&mut command);
        restore::start(&mut command).map(KilledOnDrop).with_context(|| format!("cannot start {what}"))
    }

    /// Starts it, and waits until it is so.
    pub fn start_until(command: Command, what: &str, is_so: impl Fn() -> bool) -> Result<KilledOnDrop> {
        let mut child = KilledOnDrop::start(command, what)?;
        let start = Instant::now();
        while !is_so() {
            child.check(what)?;
            ensure!(start.elapsed() < START_LIMIT, "{what}: not ready in {} s", START_LIMIT.as_secs());
            sleep(Duration::from_millis(20));
        }
        Ok(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Fails unless it runs still.
    pub fn check(&mut self, what: &str) -> Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{what} did not survive: {status}"),
        }
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The outcome of a program that ended.
pub struct Finished {
    pub output: String,
    pub minor_faults: f64,
    pub peak: f64,
}

/// Runs a program to its good end, or kills it when its time is over.
pub fn run(mut command: Command, limit: Duration, what: &str) -> Result<Finished> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = KilledOnDrop::start(command, what)?;
    let (pid, (over, is_over)) = (child.pid(), channel::<()>());
    let guard = std::thread::spawn(move || {
        let is_late = is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if is_late {
            kill(pid);
        }
        is_late
    });
    let (mut output, mut complaint) = (Vec::new(), String::new());
    child.0.stdout.take().context("no output")?.read_to_end(&mut output)?;
    drop(over);
    ensure!(!guard.join().unwrap_or(true), "{what} did not end in its time");
    let (status, usage) = wait(pid)?;
    let _ = child.0.stderr.take().map(|mut pipe| pipe.read_to_string(&mut complaint));
    std::mem::forget(child); // It was waited for.
    ensure!(status == 0, "{what} ended with status {status:#x}: {}", complaint.lines().next().unwrap_or("no message"));
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Finished { output, minor_faults: usage.ru_minflt as f64, peak: usage.ru_maxrss as f64 * 1024.0 })
}

fn wait(pid: u32) -> Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: the kernel fills the status and the usage.
    let (got, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid as libc::pid_t, &mut status, 0, &mut usage), usage)
    };
    ensure!(got == pid as libc::pid_t, "cannot wait for the child");
    Ok((status, usage))
}

/// The JSON that a program says, which ends in its time.
pub fn told(command: Command, limit: u64, what: &str) -> Result<Value> {
    let finished = run(command, Duration::from_secs(limit), what)?;
    serde_json::from_str(finished.output.trim()).with_context(|| format!("{what} said no JSON: {}", finished.output))
}

/// A number of what a program said.
pub fn number(said: &Value, key: &str) -> Result<f64> {
    said[key].as_f64().with_context(|| format!("no '{key}' in {said}"))
}

/// The numbers of a list; none where it is none.
pub fn numbers(said: &Value) -> Vec<f64> {
    said.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// A program that says lines of JSON, and goes on when it is told to.
pub struct Program {
    pub child: KilledOnDrop,
    name: String,
    lines: Receiver<(Instant, String)>,
    /// The last line, and when it came.
    pub said: Value,
    pub since: Instant,
}

impl Program {
    /// Starts it, in a cgroup or not.
    pub fn start(name: &str, mut command: Command, cgroup: Option<&Cgroup>) -> Result<Program> {
        cgroup.into_iter().for_each(|cgroup| cgroup.group.enter(&mut command));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = KilledOnDrop::start(command, name)?;
        let output = BufReader::new(child.0.stdout.take().context("no output")?);
        let (to, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| to.send((Instant::now(), line)))
        });
        Ok(Program { child, name: name.into(), lines, said: Value::Null, since: Instant::now() })
    }

    /// Starts it, and waits for its first line.
    pub fn first_phase(name: &str, command: Command, cgroup: Option<&Cgroup>) -> Result<Program> {
        let mut program = Program::start(name, command, cgroup)?;
        program.listen(PHASE_LIMIT)?;
        Ok(program)
    }

    /// Waits for a line; false if none comes in time.
    pub fn hears_in(&mut self, time: Duration) -> Result<bool> {
        match self.lines.recv_timeout(time) {
            Ok((at, line)) => {
                self.said = serde_json::from_str(&line).with_context(|| format!("{} said '{line}'", self.name))?;
                self.since = at;
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => bail!("{} ended before its time", self.name),
        }
    }

    fn listen(&mut self, limit: Duration) -> Result<()> {
        ensure!(self.hears_in(limit)?, "{} did not answer in its time", self.name);
        Ok(())
    }

    /// Lets it go on.
    pub fn go_on(&mut self) -> Result<()> {
        let pipe = self.child.0.stdin.as_mut().context("its input is closed")?;
        pipe.write_all(b"\n").with_context(|| format!("{} is gone", self.name))
    }

    /// Lets it go on, and waits for the line of its next phase.
    pub fn next_phase(&mut self) -> Result<()> {
        self.go_on()?;
        self.listen(PHASE_LIMIT)
    }

    /// All that it says until it ends.
    pub fn rest(mut self) -> Result<(Vec<Value>, ExitStatus)> {
        let lines = self.lines.iter().filter_map(|(_, line)| serde_json::from_str(&line).ok()).collect();
        Ok((lines, self.child.0.wait()?))
    }

    pub fn memory(&self) -> Result<ProcessMemory> {
        memory(self.child.pid())
    }

    /// Memory that it holds so many seconds after its last line.
    pub fn memory_at(&self, seconds: f64) -> Result<ProcessMemory> {
        sleep_until(self.since, seconds);
        self.memory()
    }

    pub fn number(&self, key: &str) -> Result<f64> {
        number(&self.said, key)
    }
}

/// Sleeps until so many seconds after a time.
pub fn sleep_until(since: Instant, seconds: f64) {
    sleep((since + Duration::from_secs_f64(seconds)).saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_of_its_failure_is_the_error() {
        assert_eq!(run_system("echo", &["a", "b"]).unwrap(), "a b");
        assert!(run_system("ls", &["/no/such/file"]).unwrap_err().to_string().contains("/no/such/file"));
        assert!(find("sh").is_some() && find("no-such-program").is_none());
        let mut slow = Command::new("sleep");
        slow.arg("60");
        assert!(
            run(slow, Duration::from_millis(10), "sleep").is_err_and(|why| why.to_string().contains("in its time"))
        );
    }
}
