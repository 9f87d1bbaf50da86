//! A pressure event that a program sends itself, and its resident set, to see what comes of it.

use super::process::resident_in_statm;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// Time for the allocator to open the pipe.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pipe that `MEMORY_PRESSURE_WATCH` names: systemd's protocol. Closing it would be an event of its own.
pub struct PressurePipe(File);

impl PressurePipe {
    /// Opens it as soon as there is a reader.
    pub fn open() -> Result<PressurePipe, String> {
        let path = std::env::var_os("MEMORY_PRESSURE_WATCH").ok_or("MEMORY_PRESSURE_WATCH names no pipe")?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Ok(pipe) = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path) {
                return Ok(PressurePipe(pipe));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("no reader of pressure events: this needs an allocator that opens MEMORY_PRESSURE_WATCH".into())
    }

    /// Sends an event.
    pub fn send(&mut self) -> Result<(), String> {
        self.0.write_all(b"some 100000 1000000\0").map_err(|why| why.to_string())
    }
}

/// `/proc/self/statm`, held open: reading it takes no lock of the address space.
pub struct Resident(File);

impl Resident {
    /// Opens it.
    pub fn open() -> Result<Resident, String> {
        File::open("/proc/self/statm").map(Resident).map_err(|why| format!("/proc/self/statm: {why}"))
    }

    /// Resident bytes now.
    pub fn now(&self) -> Result<u64, String> {
        let mut text = [0u8; 128];
        // SAFETY: reads into `text` and no further.
        let n = unsafe { libc::pread(self.0.as_raw_fd(), text.as_mut_ptr().cast(), text.len(), 0) };
        resident_in_statm(&text[..n.max(0) as usize]).ok_or_else(|| "statm has no resident set".into())
    }
}
