//! An experiment that changes the machine, or counts what the whole machine does, runs alone.

use crate::harness::leftovers;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Held while the experiment runs; the kernel unlocks it when the process ends, however that happens.
pub struct ExclusiveLock(#[allow(dead_code, reason = "the lock is the open file's")] File);

/// Locks, after waiting until no other weir-lab on this machine holds the lock. Then clears what killed runs left.
pub fn lock() -> Result<ExclusiveLock, String> {
    let (path, file) = open()?;
    if !try_lock(&file, libc::LOCK_NB) {
        eprintln!("weir-lab: another experiment that changes this machine is running; waiting for its end");
        if !try_lock(&file, 0) {
            return Err(format!("cannot lock {}: {}", path.display(), std::io::Error::last_os_error()));
        }
    }
    leftovers::clear();
    Ok(ExclusiveLock(file))
}

/// Clears what killed runs left, unless an experiment holds the lock: that one has done it.
pub fn clear_leftovers() -> Result<(), String> {
    let (_, file) = open()?;
    if try_lock(&file, libc::LOCK_NB) {
        leftovers::clear();
    }
    Ok(())
}

fn try_lock(file: &File, how: libc::c_int) -> bool {
    // SAFETY: the descriptor is the open file's.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | how) == 0 }
}

fn open() -> Result<(PathBuf, File), String> {
    let path = std::env::temp_dir().join("weir-lab.lock");
    // Open for reading is enough to lock, and works for another user after root has created the file.
    let opened = File::open(&path).or_else(|_| OpenOptions::new().create(true).append(true).open(&path));
    let file = opened.map_err(|why| format!("cannot open {}: {why}", path.display()))?;
    Ok((path, file))
}
