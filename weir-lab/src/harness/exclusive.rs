//! An experiment that changes the machine, or counts what the whole machine does, runs alone.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

/// Held while the experiment runs; the kernel unlocks it when the process ends, however that happens.
pub struct ExclusiveLock(#[allow(dead_code, reason = "the lock is the open file's")] File);

/// Locks, after waiting until no other weir-lab on this machine holds the lock.
pub fn lock() -> Result<ExclusiveLock, String> {
    let path = std::env::temp_dir().join("weir-lab.lock");
    // Open for reading is enough to lock, and works for another user after root has created the file.
    let opened = File::open(&path).or_else(|_| OpenOptions::new().create(true).append(true).open(&path));
    let file = opened.map_err(|why| format!("cannot open {}: {why}", path.display()))?;
    // SAFETY: the descriptor is the open file's.
    let lock = |how| unsafe { libc::flock(file.as_raw_fd(), how) == 0 };
    if !lock(libc::LOCK_EX | libc::LOCK_NB) {
        eprintln!("weir-lab: another experiment that changes this machine is running; waiting for its end");
        if !lock(libc::LOCK_EX) {
            return Err(format!("cannot lock {}: {}", path.display(), std::io::Error::last_os_error()));
        }
    }
    Ok(ExclusiveLock(file))
}
