//! A program's page of statistics: Weir in a child keeps its counters in a file that this process makes, so that they
//! can be read while it runs and after it has ended.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::{FILE_PAGES, Header, MAGIC, PAGE_BYTES, Stats, VERSION};

const BYTES: usize = FILE_PAGES * PAGE_BYTES;

/// A statistics file for one program.
pub struct StatsPage {
    file: File,
    map: *mut c_void,
}

impl StatsPage {
    /// Makes an empty one: a memfd that cannot be cut short, which is all that Weir accepts.
    pub fn make() -> Result<StatsPage, String> {
        let failed = |what: &str| format!("cannot make a statistics file: {what}: {}", std::io::Error::last_os_error());
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a C string; the descriptor is new and becomes the file's.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"weir-stats".as_ptr(), flags);
            if descriptor < 0 {
                return Err(failed("memfd"));
            }
            File::from_raw_fd(descriptor)
        };
        // SAFETY: calls on the new file's own descriptor; no memory is involved.
        let is_ready = unsafe {
            libc::fchmod(file.as_raw_fd(), 0o600) == 0
                && libc::ftruncate(file.as_raw_fd(), BYTES as libc::off_t) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) == 0
        };
        if !is_ready {
            return Err(failed("its length"));
        }
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, chosen by the kernel, of a file that cannot become shorter.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, shared, file.as_raw_fd(), 0) };
        if map == libc::MAP_FAILED {
            return Err(failed("its mapping"));
        }
        let page = StatsPage { file, map };
        page.header().init();
        Ok(page)
    }

    /// Has a program keep its counters here.
    pub fn name_to(&self, command: &mut Command) {
        command.env("WEIR_STATS", format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()));
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is as long as the file, aligned to pages, of atomics only, and outlives the reference.
        unsafe { &*self.map.cast() }
    }

    /// The counters of the program that took the first page.
    pub fn stats(&self) -> Result<&Stats, String> {
        if self.header().next.load(Relaxed) < 2 {
            return Err("the program keeps no statistics: it is not on Weir, or of another version".into());
        }
        // SAFETY: the second page lies in the mapping, and holds atomics only, for which any bytes are a value.
        let stats = unsafe { &*self.map.byte_add(PAGE_BYTES).cast::<Stats>() };
        if (stats.magic.load(Relaxed), stats.version.load(Relaxed)) != (MAGIC, VERSION) {
            return Err("the program's statistics are of another version of Weir".into());
        }
        Ok(stats)
    }
}

impl Drop for StatsPage {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.map, BYTES) };
    }
}
