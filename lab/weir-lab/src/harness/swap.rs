//! A swap file that is made for an experiment and removed after it.

use crate::harness::owner;
use crate::harness::proc_files::PAGE;
use crate::harness::restore::{RestoreGuard, on_end};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes `bytes` of swap in `directory`, on until the guard goes.
pub fn make(directory: &Path, bytes: u64) -> Result<RestoreGuard, String> {
    let path = directory.join(owner::name(".swap"));
    let undo = path.clone();
    let guard = on_end(move || _ = remove(&undo));
    switch_on(&path, bytes)?;
    Ok(guard)
}

/// Writes the file and has the kernel swap to it.
pub fn switch_on(path: &Path, bytes: u64) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "the swap file's path has a zero byte")?;
    write_file(path, bytes).map_err(|why| format!("cannot write the swap file {}: {why}", path.display()))?;
    // SAFETY: a C string; the kernel checks the rest.
    if unsafe { libc::swapon(name.as_ptr(), 0) } != 0 {
        let why = std::io::Error::last_os_error();
        return Err(format!("cannot swap to {} (needs root and a file system that can): {why}", path.display()));
    }
    Ok(())
}

/// Makes a file of `bytes` that a guest can swap to, as its disk, until the guard goes. It takes room only as it is
/// written to.
pub fn make_for_guest(bytes: u64) -> Result<(PathBuf, RestoreGuard), String> {
    let path = std::env::temp_dir().join(owner::name(".guest-swap"));
    let undo = path.clone();
    let guard = on_end(move || drop(std::fs::remove_file(undo)));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&header(bytes / PAGE))?;
        file.set_len(bytes)
    };
    write().map_err(|why| format!("cannot write {}: {why}", path.display()))?;
    Ok((path, guard))
}

/// Every block is written: a file with holes cannot be swapped to. Then the header that mkswap writes.
fn write_file(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let pages = bytes / PAGE;
    file.write_all(&header(pages))?;
    let chunk = vec![0u8; 1 << 20];
    let mut left = (pages - 1) * PAGE;
    while left > 0 {
        let now = left.min(chunk.len() as u64);
        file.write_all(&chunk[..now as usize])?;
        left -= now;
    }
    File::sync_all(&file)
}

/// Version 1 of the header: version, last page and number of bad pages from byte 1024 on, the signature at the end.
fn header(pages: u64) -> Vec<u8> {
    let mut page = vec![0u8; PAGE as usize];
    page[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    page[1028..1032].copy_from_slice(&((pages - 1) as u32).to_ne_bytes());
    page[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
    page
}

/// Switches it off and removes it; whether it is gone.
pub fn remove(path: &Path) -> bool {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: a C string. That it was never switched on is no error here.
    unsafe { libc::swapoff(name.as_ptr()) };
    std::fs::remove_file(path).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_header_is_mkswaps() {
        let page = super::header(256);
        assert_eq!(&page[4086..], b"SWAPSPACE2");
        assert_eq!(page[1028..1032], 255u32.to_ne_bytes());
    }
}
