//! A file that is read past the kernel's page cache: what a miss costs.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// What the kernel demands of a buffer for direct reads: a disk's sector or less.
const ALIGNMENT: usize = 4096;

/// The file and a buffer for its blocks.
pub struct DirectFile {
    file: File,
    buffer: Vec<u8>,
    from: usize,
    block: usize,
}

impl DirectFile {
    /// Opens it for reads of `block` bytes, a multiple of 4096.
    pub fn open(path: &str, block: usize) -> Result<DirectFile, String> {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        let file = opened.map_err(|why| format!("cannot open {path} for direct reads: {why}"))?;
        let buffer = vec![0; block + ALIGNMENT];
        let from = buffer.as_ptr().align_offset(ALIGNMENT);
        Ok(DirectFile { file, buffer, from, block })
    }

    /// Reads one block.
    pub fn read(&mut self, number: u64) -> Result<&[u8], String> {
        let into = &mut self.buffer[self.from..self.from + self.block];
        let at = (number * self.block as u64) as libc::off_t;
        // SAFETY: `into` is writable for its whole length.
        let got = unsafe { libc::pread(self.file.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), at) };
        if got != into.len() as isize {
            return Err(format!("cannot read block {number}: {}", std::io::Error::last_os_error()));
        }
        Ok(into)
    }
}
