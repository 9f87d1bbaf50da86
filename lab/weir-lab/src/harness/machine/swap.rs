//! A swap file that is made for an experiment and removed after it.

use crate::harness::child::run_system;
use crate::harness::machine::owner::{self, OwnFile};
use crate::harness::machine::restore::{RestoreGuard, on_end};
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A swap file of this machine.
pub fn make(directory: &Path, bytes: u64) -> Result<RestoreGuard> {
    let path = directory.join(owner::name(".swap"));
    let undo = path.clone();
    let guard = on_end(move || _ = remove(&undo));
    switch_on(&path, bytes)?;
    Ok(guard)
}

/// Writes a swap file and swaps to it.
pub fn switch_on(path: &Path, bytes: u64) -> Result<()> {
    write(path, bytes)?;
    run_system("swapon", &[path]).context("cannot swap (needs root and a file system that can)").map(drop)
}

/// A swap file for a guest to swap to.
pub fn make_for_guest(bytes: u64) -> Result<OwnFile> {
    let file = owner::file(&std::env::temp_dir(), ".guest-swap");
    write(&file.path, bytes)?;
    Ok(file)
}

/// All of it is written: a swap file may have no hole.
fn write(path: &Path, bytes: u64) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let chunk = vec![0u8; 1 << 20];
    (0..bytes >> 20).try_for_each(|_| file.write_all(&chunk))?;
    file.sync_all()?;
    run_system("mkswap", &[path]).map(drop)
}

/// Stops to swap to a file, and removes it.
pub fn remove(path: &Path) -> bool {
    let _ = run_system("swapoff", &[path]);
    std::fs::remove_file(path).is_ok()
}
