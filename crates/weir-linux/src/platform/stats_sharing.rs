//! The page of counters, open to whoever may look into the process: `weir stat`.
//!
//! The background thread makes a sealed memfd, puts it in place of the counters' page, and keeps its descriptor for as long
//! as it runs. The descriptor is in the thread's own table, so that the program neither sees nor closes it, and no child
//! inherits it. A reader finds it as `/proc/PID/task/TID/fd/N`, which the kernel opens for who may read the process's
//! memory: the same user, and root. No name, no file and no mapping is left when the process has ended.
//!
//! Not shared are the counters of a process that has no background thread (its heap is small, or `background` is not 1), of
//! one under a filter of its own ([`super::sandbox`]), and where `publish` is 0. Who may trace the process can read
//! them all the same, where they lie.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::{Opening, PAGE_BYTES};

use crate::os::mman::{self, MAP_SHARED, PROT_READ, PROT_WRITE};
use crate::os::syscall::Result;
use crate::os::{fd, memfd};
use crate::platform::sandbox::Sandbox;
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page;

/// What the background thread holds open: by this thread alone, whose table it is in.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// The file, if it was made.
    file: Option<i32>,
    /// The thread has a descriptor table of its own.
    is_private: bool,
    /// The setting `publish`, as it was followed last.
    followed: Option<u64>,
}

impl Sharing {
    /// Nothing is shared yet, by a thread that has (or has not) a descriptor table of its own.
    pub fn new(is_private: bool) -> Self {
        Self { file: None, is_private, followed: None }
    }

    /// Shares the page, or ends that, as the setting says now.
    pub fn follow_setting(&mut self) {
        let wanted = TUNABLES.publish.get();
        if self.followed == Some(wanted) {
            return;
        }
        self.followed = Some(wanted);
        let (state, error) = if wanted == 0 {
            self.end();
            (Opening::Off, 0)
        } else if stats_page::is_in_file() {
            // It is in the file of `weir run`.
            (Opening::Open, 0)
        } else if !self.is_private || Sandbox::look().is_none_or(|sandbox| sandbox.is_programs_own()) {
            (Opening::Sandbox, 0)
        } else {
            match self.begin() {
                Ok(()) => (Opening::Open, 0),
                Err(error) => (Opening::Refused, error.0 as u32),
            }
        };
        STATS.sharing_error.store(error, Relaxed);
        STATS.sharing.store(state as u32, Relaxed);
    }

    fn begin(&mut self) -> Result<()> {
        let file = memfd::create(c"weir-page", PAGE_BYTES)?;
        let shared = map(file).and_then(stats_page::share);
        match shared {
            Ok(()) => self.file = Some(file),
            Err(_) => drop(fd::close(file)),
        }
        shared
    }

    fn end(&mut self) {
        // It may be that of an earlier thread, the descriptor of which ended with it.
        stats_page::unshare();
        if let Some(file) = self.file.take() {
            let _ = fd::close(file);
        }
    }
}

/// Maps the file, with memory behind all of it, and seals it: what is mapped by then stays writable.
fn map(file: i32) -> Result<*mut u8> {
    // SAFETY: without MAP_FIXED nothing that exists is replaced.
    let page = unsafe { mman::mmap(null_mut(), PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) }?;
    // SAFETY: the mapping made just now.
    let made = unsafe { stats_page::populate(page, PAGE_BYTES) }.and_then(|()| memfd::seal(file));
    if made.is_err() {
        // SAFETY: the mapping made above, the address of which nothing else has.
        let _ = unsafe { mman::munmap(page, PAGE_BYTES) };
    }
    made.map(|()| page)
}
