//! Files of the kernel's about this process's memory.

use crate::os::fd;
use crate::os::syscall::Result;
use core::ffi::CStr;

/// One of them. The calling thread's is read, as the main thread's (`/proc/self`) has no memory any more once that thread has ended
/// before others: it counts none, or cannot be read.
pub struct OwnFile {
    of_thread: &'static CStr,
    of_main_thread: &'static CStr,
}

macro_rules! own_files {
    ($($(#[$doc:meta])* $name:ident = $path:literal;)*) => {
        impl OwnFile {$(
            $(#[$doc])*
            pub const $name: Self = Self {
                of_thread: path(concat!("/proc/thread-self/", $path, "\0")),
                of_main_thread: path(concat!("/proc/self/", $path, "\0")),
            };
        )*}
    };
}

own_files! {
    /// Counts of pages.
    STATM = "statm";
    /// A word for each page.
    PAGEMAP = "pagemap";
    /// All mappings.
    MAPS = "maps";
    /// How many pages the kernel has merged.
    MERGED = "ksm_merging_pages";
}

const fn path(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(path) => path,
        Err(_) => panic!("a C string"),
    }
}

impl OwnFile {
    /// Opens it to be read. It is that of this thread for as long as it is open: after the thread's end it says nothing.
    pub fn open(&self) -> Result<i32> {
        // A kernel before 3.17 does not have the first.
        fd::open(self.of_thread, fd::O_RDONLY).or_else(|_| fd::open(self.of_main_thread, fd::O_RDONLY))
    }

    /// [`fd::read_file`] of it.
    pub fn read<'a>(&self, buf: &'a mut [u8]) -> Result<&'a [u8]> {
        let file = self.open()?;
        let len = fd::read_all(file, buf);
        let _ = fd::close(file);
        len.map(|len| &buf[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_for_the_calling_thread() {
        for file in [&OwnFile::STATM, &OwnFile::PAGEMAP, &OwnFile::MAPS] {
            fd::stat(file.of_thread).unwrap();
            fd::close(file.open().unwrap()).unwrap();
        }
        let mut buf = [0; 64];
        assert!(OwnFile::STATM.read(&mut buf).unwrap().len() > 10);
    }
}
