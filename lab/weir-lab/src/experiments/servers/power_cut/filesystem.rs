//! ext4 on the server: files that `fsync` has made safe are there after the cut, and the journal makes the rest whole.

use super::drive::Drive;
use crate::harness::nbd::block_device::{Mounted, attach_loop, mount};
use crate::harness::prelude::*;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;

/// The names that files have in turn.
const FILES: u64 = 64;

pub fn make(drive: &Drive) -> Result<()> {
    run_system("mkfs.ext4", &[OsStr::new("-q"), OsStr::new("-F"), drive.image.as_os_str()]).map(drop)
}

/// Mounts an export and writes files, each made safe before the next, until it is gone.
pub fn write(folder: &Folder, uri: &str, first: u64) -> Result<Vec<u64>> {
    let mounted = Mounted::make(&folder.below("fuse")?, &folder.below("files")?, uri, false)?;
    Ok((first..).take_while(|&number| write_file(&mounted.at, number).is_ok()).collect())
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file-{}", number % FILES))
}

/// 1 to 64 KiB, which follow from the number.
fn content(number: u64) -> Vec<u8> {
    let words = 128 + number.wrapping_mul(0x9e37_79b9) % 8064;
    (0..words).flat_map(|word| (number << 20 | word).to_le_bytes()).collect()
}

fn write_file(folder: &Path, number: u64) -> std::io::Result<()> {
    let new = folder.join("new");
    let mut file = File::create(&new)?;
    file.write_all(&content(number))?;
    file.sync_all()?;
    std::fs::rename(&new, path(folder, number))?;
    File::open(folder)?.sync_all()
}

/// How many safe files are there, each with its content; an error is one that is not, or damage.
pub fn check(drive: &Drive, folder: &Folder, safe: &[u64]) -> Result<usize> {
    let last = &safe[safe.len().saturating_sub(FILES as usize)..];
    {
        let (device, _attached) = attach_loop(&drive.image)?;
        let at = folder.below("files")?;
        let _mounted = mount(&device, &at)?; // The journal is replayed.
        last.iter().try_for_each(|&number| check_file(&at, number, last))?;
    }
    let check = [OsStr::new("-f"), OsStr::new("-n"), drive.image.as_os_str()];
    run_system("e2fsck", &check).context("the file system is damaged")?;
    Ok(last.len())
}

/// A file may have been replaced by the one that was being written when power went.
fn check_file(folder: &Path, number: u64, last: &[u64]) -> Result<()> {
    let found = std::fs::read(path(folder, number)).with_context(|| format!("file {number} is lost"))?;
    let is_next = last.last().is_some_and(|last| number + FILES == last + 1) && found == content(number + FILES);
    ensure!(found == content(number) || is_next, "file {number} has another content");
    Ok(())
}
