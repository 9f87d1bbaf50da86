//! What a guest has in place of a userland: file systems of the kernel's own, and variables from a file.

use std::ffi::CString;
use std::io;

/// What the programs that are looked at are told.
pub fn environment() -> Vec<(String, String)> {
    let text = std::fs::read_to_string("/environment").unwrap_or_default();
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// Mounts a file system that needs no device.
pub fn mount(kind: &str, place: &str) -> io::Result<()> {
    let word = |text: &str| CString::new(text).map_err(io::Error::other);
    let (kind, place) = (word(kind)?, word(place)?);
    // SAFETY: C strings, and no options.
    let failed = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
