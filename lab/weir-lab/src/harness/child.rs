//! Starts a program under an allocator and measures it from outside.

use crate::harness::{owner, restore};
use crate::peers::Allocator;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a finished child printed and used. Its time is in its output: start-up is no part of a workload.
pub struct Finished {
    /// Its standard output.
    pub output: String,
    /// Page faults that needed no reading, from its exec on.
    pub minor_faults: i64,
    /// The greatest resident set of it and of the children it waited for, bytes. Of small programs it is the
    /// harness's own, from between fork and exec.
    pub peak: i64,
}

/// `weir-lab-load`, beside this program.
pub fn load_program() -> Result<PathBuf, String> {
    beside("weir-lab-load")
}

/// A program that lies beside this one.
pub fn beside(name: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let found = program.with_file_name(name);
    if found.exists() {
        Ok(found)
    } else {
        Err(format!("{name} is not beside weir-lab: cargo build --release -p weir-lab"))
    }
}

/// A command under `allocator`, without the variables of the environment that configure a malloc.
pub fn command(program: impl AsRef<std::ffi::OsStr>, allocator: &Allocator) -> Command {
    let mut command = Command::new(program);
    for name in [
        "LD_PRELOAD",
        "MALLOC_CONF",
        "MALLOC_ARENA_MAX",
        "GLIBC_TUNABLES",
        "MEMORY_PRESSURE_WATCH",
        "MEMORY_PRESSURE_WRITE",
    ] {
        command.env_remove(name);
    }
    command.envs(allocator.env.iter().copied());
    if let Some(object) = &allocator.preload {
        command.env("LD_PRELOAD", object);
    }
    command
}

/// A child that is killed and waited for when this is dropped.
pub struct KilledOnDrop(pub Child);

impl KilledOnDrop {
    /// Starts it. `what` is for the error.
    pub fn start(mut command: Command, what: &str) -> Result<KilledOnDrop, String> {
        owner::mark(&mut command);
        restore::start(&mut command).map(KilledOnDrop).map_err(|why| format!("cannot start {what}: {why}"))
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time for a child to come up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `is_so`, of a child that is coming up.
pub fn wait_until(what: &str, child: &mut KilledOnDrop, is_so: impl Fn() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !is_so() {
        if let Ok(Some(status)) = child.0.try_wait() {
            return Err(format!("{what}: it ended: {status}"));
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{what}: not in {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs `command` to its end, `limit` at most. `what` is for the error.
pub fn run(mut command: Command, limit: Duration, what: &str) -> Result<Finished, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    // std starts this child by vfork, so no copied page of the harness is in its faults.
    let mut child = KilledOnDrop::start(command, what)?;
    let output = read_until(&mut child.0, start + limit).map_err(|why| format!("{what}: {why}"))?;
    let (status, usage) = wait(child.0.id())?;
    let mut complaint = String::new();
    if let Some(mut stderr) = child.0.stderr.take() {
        let _ = stderr.read_to_string(&mut complaint);
    }
    // It is waited for: nothing is left to kill under that number.
    std::mem::forget(child);
    if status != 0 {
        let first = complaint.lines().next().unwrap_or("no message");
        return Err(format!("{what} ended with status {status:#x}: {first}"));
    }
    Ok(Finished { output, minor_faults: usage.ru_minflt, peak: usage.ru_maxrss * 1024 })
}

/// Reads standard output to its end.
fn read_until(child: &mut Child, deadline: Instant) -> Result<String, String> {
    let mut pipe = child.stdout.take().ok_or("no output to read")?;
    let (mut text, mut buffer) = (Vec::new(), [0u8; 4096]);
    loop {
        wait_readable(&pipe, deadline)?;
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(why) => return Err(format!("cannot read its output: {why}")),
        }
    }
}

/// Waits until there is something to read, or the other end is closed.
pub fn wait_readable(pipe: &impl AsRawFd, deadline: Instant) -> Result<(), String> {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis() as i32;
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    if unsafe { libc::poll(&mut poll, 1, left) } > 0 {
        Ok(())
    } else {
        Err("it did not end or answer in its time".into())
    }
}

/// `wait4`: the exit status as the kernel gives it, and what the child used.
fn wait(pid: u32) -> Result<(i32, libc::rusage), String> {
    let mut status = 0;
    // SAFETY: rusage is plain data, wait4 fills it and `status`.
    let (got, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid as libc::pid_t, &mut status, 0, &mut usage), usage)
    };
    if got == pid as libc::pid_t { Ok((status, usage)) } else { Err("cannot wait for the child".into()) }
}
