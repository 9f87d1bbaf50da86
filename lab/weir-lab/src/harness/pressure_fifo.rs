//! A pressure event by systemd's protocol: bytes in the FIFO that `MEMORY_PRESSURE_WATCH` names.

use crate::harness::owner;
use crate::harness::restore::{RestoreGuard, on_end};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A named pipe in the directory for temporary files, removed at the end.
pub struct PressureFifo(PathBuf, #[allow(dead_code, reason = "removes the pipe when dropped")] RestoreGuard);

impl PressureFifo {
    /// Makes it.
    pub fn make() -> Result<PressureFifo, String> {
        let path = std::env::temp_dir().join(owner::name(".pressure"));
        let name = std::ffi::CString::new(path.clone().into_os_string().into_encoded_bytes()).unwrap_or_default();
        let undo = path.clone();
        let guard = on_end(move || drop(std::fs::remove_file(undo)));
        // SAFETY: a C string.
        if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
            return Err(format!("cannot make the pipe {}: {}", path.display(), std::io::Error::last_os_error()));
        }
        Ok(PressureFifo(path, guard))
    }

    /// The value of `MEMORY_PRESSURE_WATCH`.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The writing end if there is a reader.
    pub fn open(&self) -> Option<File> {
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.0).ok()
    }

    /// Writes the event if there is a reader. The writer is answered: closing it would be an event of its own.
    pub fn send(&self) -> Option<File> {
        let mut pipe = self.open()?;
        tell(&mut pipe).then_some(pipe)
    }
}

/// One event more on an open pipe; whether it was taken.
pub fn tell(pipe: &mut File) -> bool {
    pipe.write_all(b"some 100000 1000000\0").is_ok()
}
