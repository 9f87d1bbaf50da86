//! The kernel's same-page merging (KSM), as the background thread sees it.
//!
//! It is the machine's: root switches it on (`/sys/kernel/mm/ksm/run`), and says how fast it looks. Files
//! are read by the background thread alone, in the descriptor table that it has for itself. They are not read in a
//! program that has put itself into a sandbox. The engine is told what was read last. So nothing is merged where there
//! is no such thread.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::os::fd;
use crate::os::file::own::OwnFile;
use crate::os::file::text::number;
use crate::os::rights::sandbox::Sandbox;
use crate::platform::statics::TUNABLES;

/// State of the kernel's merging as it was read last.
pub struct Merging {
    is_on: AtomicBool,
    /// Pages of this process that share memory.
    pages: AtomicUsize,
}

impl Merging {
    pub(in crate::platform) const fn new() -> Self {
        Self { is_on: AtomicBool::new(false), pages: AtomicUsize::new(0) }
    }

    pub(in crate::platform) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    pub(in crate::platform) fn pages(&self) -> usize {
        self.pages.load(Relaxed)
    }

    /// Reads how it is now. For a thread with a descriptor table of its own.
    pub(crate) fn look(&self) {
        let may_read = Sandbox::look().is_ok_and(|sandbox| !sandbox.is_programs_own());
        let mut buf = [0u8; 24];
        let is_on = may_read && fd::read_file(c"/sys/kernel/mm/ksm/run", &mut buf).ok().and_then(number) == Some(1);
        self.is_on.store(is_on, Relaxed);
        // Of Linux 5.19. Before that nothing says it, and nothing counts as merged.
        let pages = if may_read { OwnFile::MERGED.read(&mut buf).ok().and_then(number) } else { None };
        self.pages.store(pages.unwrap_or(0) as usize, Relaxed);
    }

    /// Reads it where the setting wants pages merged: nothing is read at the end of a window in a process at rest.
    pub(crate) fn look_if_wanted(&self) {
        if TUNABLES.merge.get() != 0 {
            self.look();
        }
    }

    /// Forgets what was read: nothing is to be merged, or the files cannot be read any more.
    pub(crate) fn forget(&self) {
        self.is_on.store(false, Relaxed);
        self.pages.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read_where_it_says_anything() {
        let merging = Merging::new();
        merging.look();
        assert_eq!(merging.is_on(), std::fs::read_to_string("/sys/kernel/mm/ksm/run").is_ok_and(|run| run == "1\n"));
        merging.forget();
        assert_eq!((merging.is_on(), merging.pages()), (false, 0));
    }
}
