//! Which process the memory belongs to, and with it the background thread.
//!
//! A `fork` past libc's, by the bare system call, copies the memory and not the thread. A `vfork` shares the memory,
//! and the thread is the parent's. Both children have another number than the process that the memory belongs to. They
//! are distinguished by a word on a page that the kernel fills with zeros in every copy of the process
//! (`MADV_WIPEONFORK`). The word is 0 in a copy, and a child that shares the memory reads the parent's number.

use crate::os::mman;
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use weir_core::base::units::PAGE;

/// The word. Its page, once mapped, stays for as long as the process.
pub(crate) struct MemoryOwner(AtomicUsize);

impl MemoryOwner {
    /// No process.
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    fn word(&self) -> Option<&AtomicU32> {
        // SAFETY: null, or mapped by `set`, page-aligned and never unmapped.
        unsafe { (self.0.load(Acquire) as *const AtomicU32).as_ref() }
    }

    /// Sets it to a process. By one thread at a time. `false`: there is no memory for the page.
    pub(crate) fn set(&self, process: u32) -> bool {
        if self.word().is_none()
            && let Ok(page) = mman::mmap_anonymous(PAGE, 0)
        {
            // SAFETY: fresh memory of this function's. A kernel before 4.14 refuses: then a copy takes itself for a
            // sharer, and leaves the thread alone.
            let _ = unsafe { mman::madvise(page, PAGE, mman::MADV_WIPEONFORK) };
            self.0.store(page as usize, Release);
        }
        self.word().map(|word| word.store(process, Relaxed)).is_some()
    }

    /// Sets it to a process in a copy of the process that it was set in. By any number of threads: one gets `true`.
    pub(crate) fn claim(&self, process: u32) -> bool {
        self.word().is_some_and(|word| word.compare_exchange(0, process, Relaxed, Relaxed).is_ok())
    }

    /// The process; 0 in a copy of it, and before it was set.
    pub(crate) fn get(&self) -> u32 {
        self.word().map_or(0, |word| word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::syscall::{check, syscall1, syscall4, syscall5};
    use linux_raw_sys::general as sys;

    #[test]
    fn a_copy_of_the_process_is_told_from_who_shares_its_memory() {
        let owner = MemoryOwner::new();
        assert_eq!(owner.get(), 0);
        assert!(owner.set(7));
        assert_eq!(owner.get(), 7);
        const SIGCHLD: usize = 17;
        // SAFETY: the child, a copy, makes one system call and ends.
        let status = unsafe {
            let child = syscall5(sys::__NR_clone, SIGCHLD, 0, 0, 0, 0);
            if child == 0 {
                syscall1(sys::__NR_exit_group, owner.get() as usize);
            }
            let mut status = -1i32;
            check(syscall4(sys::__NR_wait4, check(child).unwrap(), &raw mut status as usize, 0, 0)).unwrap();
            status
        };
        if status >> 8 == 7 {
            weir_testing::skip!("the kernel knows no MADV_WIPEONFORK");
            return;
        }
        assert_eq!(status, 0);
        assert_eq!(owner.get(), 7);
    }
}
