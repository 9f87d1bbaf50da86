//! Programs that are told what to do by lines on standard input, and say "ok" when they have done it.

use super::subject::{Data, Subject};
use crate::base::cgroup_v2::Group;
use crate::base::userland::environment;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// How long an answer may take, ms.
const PATIENCE_MS: i32 = 120_000;
/// Where the harness says which interpreter is in the guest.
const PYTHON: &str = "/python";
/// The cache server, and where the harness says which cache it has.
const CACHE_SERVER: &str = "/cache-server";
const CACHE: &str = "/cache";
/// Bytes for which a cache with a size is made, in multiples of the data: the data and the peak, and a little more.
const CACHE_BYTES: u64 = 5;

/// One under way.
pub struct Lines(Child);

impl Lines {
    /// Python, with its own small-object allocator switched off.
    pub fn python(group: &Group, data: Data) -> Result<Lines, String> {
        let interpreter = fs::read_to_string(PYTHON).map_err(|why| format!("no python: {why}"))?;
        let mut command = Command::new(interpreter.trim());
        command.args(["-S", "-s", "-B", "-c", include_str!("live_shrink.py")]).arg(data.bytes.to_string());
        command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
        Lines::start(group, command)
    }

    /// A server with a cache.
    pub fn cache(group: &Group, data: Data) -> Result<Lines, String> {
        let kind = fs::read_to_string(CACHE).map_err(|why| format!("no cache server: {why}"))?;
        let mut command = Command::new(CACHE_SERVER);
        command.args(["server".to_string(), format!("cache={}", kind.trim()), format!("data={}", data.bytes)]);
        command.arg(format!("bytes={}", data.bytes * CACHE_BYTES));
        Lines::start(group, command)
    }

    fn start(group: &Group, mut command: Command) -> Result<Lines, String> {
        command.envs(environment()).stdin(Stdio::piped()).stdout(Stdio::piped());
        group.start(&mut command).map(Lines)
    }

    fn tell(&mut self, what: &str) -> Result<(), String> {
        let input = self.0.stdin.as_mut().ok_or("no input")?;
        input.write_all(what.as_bytes()).map_err(|why| format!("the program is gone: {why}"))?;
        let output = self.0.stdout.as_mut().ok_or("no output")?;
        let mut poll = libc::pollfd { fd: output.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&mut poll, 1, PATIENCE_MS) } <= 0 {
            return Err("the program did not answer in its time".into());
        }
        let mut answer = [0; 3];
        output.read_exact(&mut answer).map_err(|_| "the program ended".to_string())?;
        if &answer == b"ok\n" { Ok(()) } else { Err("the program answered wrongly".into()) }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Subject for Lines {
    fn load(&mut self) -> Result<(), String> {
        self.tell("load\n")
    }

    fn peak(&mut self) -> Result<(), String> {
        self.tell("peak\n")
    }

    fn work(&mut self) -> Result<f64, String> {
        let start = Instant::now();
        self.tell("work\n")?;
        Ok(start.elapsed().as_secs_f64())
    }
}
