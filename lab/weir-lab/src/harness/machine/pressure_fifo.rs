//! A pressure event by systemd's protocol: bytes in the FIFO that `MEMORY_PRESSURE_WATCH` names.

use crate::harness::machine::owner::{self, OwnFile};
use anyhow::Result;
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A FIFO, and its writing end once somebody reads.
pub struct PressureFifo(OwnFile, Option<File>);

impl PressureFifo {
    pub fn make() -> Result<PressureFifo> {
        let file = owner::file(&std::env::temp_dir(), ".pressure");
        nix::unistd::mkfifo(&file.path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        Ok(PressureFifo(file, None))
    }

    /// Has what a command starts watch it.
    pub fn name_to(&self, command: &mut Command) {
        command.env("MEMORY_PRESSURE_WATCH", &self.0.path);
    }

    /// Sends an event; whether anybody heard it.
    pub fn send(&mut self) -> bool {
        if self.1.is_none() {
            self.1 = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.0.path).ok();
        }
        self.1.as_mut().is_some_and(|pipe| pipe.write_all(b"some 100000 1000000\0").is_ok())
    }

    /// Sends events all the time that the work takes; its result, and how many events were heard.
    pub fn send_during<T>(&mut self, every: Duration, work: impl FnOnce() -> T) -> (T, u64) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let events = scope.spawn(|| {
                let mut events = 0;
                while !over.load(Ordering::Relaxed) {
                    events += u64::from(self.send());
                    std::thread::sleep(every);
                }
                events
            });
            let result = work();
            over.store(true, Ordering::Relaxed);
            (result, events.join().unwrap_or(0))
        })
    }
}
