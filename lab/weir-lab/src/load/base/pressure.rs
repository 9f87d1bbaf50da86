//! A pressure event that a program sends itself, to see what comes of it.

use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);

/// The pipe that `MEMORY_PRESSURE_WATCH` names, of which the allocator has the reading end.
pub struct PressurePipe(File);

impl PressurePipe {
    /// Waits until the allocator has opened it.
    pub fn open() -> Result<PressurePipe> {
        let path = std::env::var_os("MEMORY_PRESSURE_WATCH").context("MEMORY_PRESSURE_WATCH names no pipe")?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Ok(pipe) = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path) {
                return Ok(PressurePipe(pipe));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("no reader of pressure events: this needs an allocator that opens MEMORY_PRESSURE_WATCH")
    }

    /// Sends an event.
    pub fn send(&mut self) -> Result<()> {
        Ok(self.0.write_all(b"some 100000 1000000\0")?)
    }
}
