//! A guest under QEMU: its console, and the memory and CPU time of its process.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;

/// A guest that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// Status of QEMU when the guest ended and all was in order (the image's `End::Good`).
const GOOD: i32 = 33;

/// Why a run came to nothing.
#[derive(Debug)]
pub enum Failure {
    /// There is no such program.
    NoQemu(String),
    /// Anything else, in words.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQemu(program) => write!(f, "there is no {program}"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// A running guest; dropped, it is killed.
pub struct Guest {
    child: Child,
    input: ChildStdin,
    lines: Receiver<(Instant, String)>,
    last: Instant,
}

impl Guest {
    /// Starts QEMU.
    pub fn start(options: &Options) -> Result<Self, Failure> {
        if !options.image.is_file() {
            let image = options.image.display();
            return Err(Failure::Other(format!("there is no {image}; build it: cargo build --release -p weir-guest")));
        }
        let switch = |on| if on { "on" } else { "off" };
        let balloon = format!(
            "virtio-balloon-pci,free-page-reporting={},page-poison={}",
            switch(options.reporting),
            switch(options.poison)
        );
        let append = format!("touch={} keep={} step=1", options.touch, options.keep);
        let mut command = Command::new(&options.qemu);
        // Nothing that would stand in the resident set, or be in the way: no default devices, no display.
        command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-serial", "stdio", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        command.args(["-m", &format!("{}M", options.memory), "-device", &balloon, "-append", &append, "-kernel"]);
        command.arg(&options.image).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Failure::NoQemu(options.qemu.clone()),
            _ => Failure::Other(format!("{} does not start: {e}", options.qemu)),
        })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for");
        };
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_string();
                // Nobody listens any more once the run is over.
                let _ = sender.send((Instant::now(), line));
            }
        });
        Ok(Self { child, input, lines, last: Instant::now() })
    }

    /// The guest's next line, without its mark, and when it came. `None` after `wait` without one.
    /// An error: the guest is gone or stuck.
    pub fn line(&mut self, wait: Duration) -> Result<Option<(Instant, String)>, Failure> {
        match self.lines.recv_timeout(wait) {
            Ok((at, line)) => {
                self.last = at;
                println!("guest: {line}");
                Ok(Some((at, line.strip_prefix("weir-guest: ").unwrap_or(&line).to_string())))
            }
            Err(RecvTimeoutError::Timeout) if self.last.elapsed() < PATIENCE => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(Failure::Other(format!("the guest said nothing for {} s", PATIENCE.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                Err(Failure::Other(format!("the guest ended early (QEMU: {status})")))
            }
        }
    }

    /// Lets the guest go on from a phase.
    pub fn go_on(&mut self) -> Result<(), Failure> {
        let sent = self.input.write_all(b"\n").and_then(|()| self.input.flush());
        sent.map_err(|e| Failure::Other(format!("the guest's console is gone: {e}")))
    }

    /// Waits for the end; an error unless the guest found all in order.
    pub fn end(mut self) -> Result<(), Failure> {
        match self.child.wait() {
            Ok(status) if status.code() == Some(GOOD) => Ok(()),
            Ok(status) => Err(Failure::Other(format!("the guest found something wrong (QEMU: {status})"))),
            Err(e) => Err(Failure::Other(format!("QEMU cannot be waited for: {e}"))),
        }
    }

    /// Bytes of QEMU's resident set.
    pub fn resident(&self) -> Result<u64, Failure> {
        let text = self.proc("smaps_rollup")?;
        let kib =
            text.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB")?.trim().parse().ok());
        kib.map(|kib: u64| kib << 10).ok_or(Failure::Other("no Rss in /proc/PID/smaps_rollup".into()))
    }

    /// CPU time of QEMU so far, in ticks of 10 ms (as on every Linux whose `CLK_TCK` is 100, which is all of x86).
    pub fn cpu(&self) -> Result<Duration, Failure> {
        let text = self.proc("stat")?;
        // The name in parentheses may hold anything; times are the 14th and 15th field.
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 10))
    }

    fn proc(&self, file: &str) -> Result<String, Failure> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).map_err(|e| Failure::Other(format!("{path}: {e}")))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
