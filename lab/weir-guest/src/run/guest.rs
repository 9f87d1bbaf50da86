//! A guest under QEMU: its console, and the memory and CPU time of its process.

use crate::options::Options;
use anyhow::{Context, Result, bail, ensure};
use procfs::process::Process;
use std::fmt::{self, Display, Formatter};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a guest may say nothing.
const PATIENCE: Duration = Duration::from_secs(300);
/// QEMU's exit code at the guest's good end: 0x10, doubled, and one.
const GOOD: i32 = 33;

/// There is no such program.
#[derive(Debug)]
pub struct NoQemu(String);

impl Display for NoQemu {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "there is no {}", self.0)
    }
}

impl std::error::Error for NoQemu {}

/// A guest that runs.
pub struct Guest {
    child: Child,
    lines: Receiver<(Instant, String)>,
    last: Instant,
}

impl Guest {
    pub fn start(options: &Options) -> Result<Guest> {
        let image = match &options.image {
            Some(image) => image.clone(),
            None => std::env::current_exe()?.with_file_name("weir-guest"),
        };
        ensure!(image.is_file(), "there is no {}; build it: cargo build --release -p weir-guest", image.display());
        let switch = |off: bool| if off { "off" } else { "on" };
        let balloon = format!(
            "virtio-balloon-pci,free-page-reporting={},page-poison={}",
            switch(options.no_reporting),
            switch(options.no_poison)
        );
        let append = format!("touch={} keep={} step=1", options.touch, options.keep);
        let mut command = Command::new(&options.qemu);
        command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-serial", "stdio", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        command.args(["-m", &format!("{}M", options.memory), "-device", &balloon, "-append", &append, "-kernel"]);
        command.arg(image).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Err(why) if why.kind() == ErrorKind::NotFound => return Err(NoQemu(options.qemu.clone()).into()),
            child => child.with_context(|| format!("{} does not start", options.qemu))?,
        };
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let (to, lines) = channel();
        std::thread::spawn(move || {
            output
                .split(b'\n')
                .map_while(Result::ok)
                .try_for_each(|line| to.send((Instant::now(), String::from_utf8_lossy(&line).trim_end().to_string())))
        });
        Ok(Guest { child, lines, last: Instant::now() })
    }

    /// A line of the guest's and when it came; none if none comes in time.
    pub fn line(&mut self, wait: Duration) -> Result<Option<(Instant, String)>> {
        match self.lines.recv_timeout(wait) {
            Ok((at, line)) => {
                self.last = at;
                println!("guest: {line}");
                Ok(Some((at, line.strip_prefix("weir-guest: ").unwrap_or(&line).to_string())))
            }
            Err(RecvTimeoutError::Timeout) if self.last.elapsed() < PATIENCE => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("the guest said nothing for {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("the guest ended early (QEMU: {})", self.child.wait()?),
        }
    }

    /// Lets it go on.
    pub fn go_on(&mut self) -> Result<()> {
        self.child.stdin.as_mut().context("no input")?.write_all(b"\n").context("the guest's console is gone")
    }

    /// Waits for its end.
    pub fn end(mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.code() == Some(GOOD), "the guest found something wrong (QEMU: {status})");
        Ok(())
    }

    /// QEMU's resident set, bytes.
    pub fn resident(&self) -> Result<f64> {
        let rollup = Process::new(self.child.id() as i32)?.smaps_rollup()?.memory_map_rollup.0;
        let rss = rollup.first().and_then(|map| map.extension.map.get("Rss").copied());
        Ok(rss.context("no Rss in /proc/PID/smaps_rollup")? as f64)
    }

    /// Processor time that QEMU has used.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = Process::new(self.child.id() as i32)?.stat()?;
        Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
