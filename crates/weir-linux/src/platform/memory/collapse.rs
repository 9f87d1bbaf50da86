//! Puts a huge page behind a pageblock that is there in single pages (`MADV_COLLAPSE`, Linux 6.1).
//!
//! The call takes whatever it finds. It brings back from swap what the program does not use, puts memory behind what was released,
//! and copies what a forked child shares. So the page table is read first ([`super::page_table`]). A page may be shared between the
//! look and the call; then it is copied, as a write would.
//!
//! Nor does the call heed the machine's mode, or that the program locked the memory. With `never` the machine is to have no
//! huge pages. A program locks memory to have no page faults, and a fault would wait here for the copy. So both are asked first.
//!
//! The call copies while every other call on the address space, and every first touch, waits. In a guest of a hypervisor the copy is
//! slow where the host has no memory behind the huge page yet: 6 to 8 ms for 0.8. So a huge page is touched and given back before:
//! the system hands out first what came back last.

use weir_core::base::run::Run;
use weir_core::base::units::PAGEBLOCK;
use weir_core::platform::Collapse;

use crate::os::mman::{self, MADV_COLD};
use crate::os::syscall::{Errno, Result};
use crate::platform::machine::{self, HugePages};
use crate::platform::memory::page_table::own_pages;

/// For a thread with a descriptor table of its own. `run` is a whole pageblock.
pub(in crate::platform) fn collapse(run: Run) -> Collapse {
    collapse_under(machine::huge_pages, run)
}

/// With the machine's mode, which is read where files may be opened.
fn collapse_under(mode: impl FnOnce() -> HugePages, run: Run) -> Collapse {
    match is_own(run) {
        Ok(true) => {}
        Ok(false) => return Collapse::Unfit,
        Err(why) => return without_table(why),
    }
    // SAFETY: no bytes at all; the kernel says whether it knows the advice.
    if unsafe { mman::madvise(run.addr as *mut u8, 0, mman::MADV_COLLAPSE) }.is_err() {
        return Collapse::Never;
    }
    // It may be another mode by the time of the next try.
    if mode() == HugePages::Never {
        return Collapse::Short;
    }
    if is_locked(run) {
        return Collapse::Unfit;
    }
    warm_up();
    // SAFETY: the mapping is the engine's; the advice changes no contents.
    match unsafe { mman::madvise(run.addr as *mut u8, run.len, mman::MADV_COLLAPSE) } {
        Ok(()) => Collapse::Done,
        Err(Errno::ENOMEM) => Collapse::Short,
        // A filter.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EACCES) => Collapse::Never,
        // Of this pageblock alone: it has several mappings, or the advice to have none (`EINVAL`); or I/O has
        // locked a page, or pinned it (`EAGAIN`). Also where this program is to have no huge pages (`EINVAL`): each pageblock is
        // asked for once.
        Err(_) => Collapse::Unfit,
    }
}

/// Whether the program locked the mapping of `run`. The kernel then refuses `MADV_COLD`. Else its pages count as not used of late, until
/// they are copied. The whole is advised: of a huge page that is there already, advice for a part of it makes single pages.
fn is_locked(run: Run) -> bool {
    // SAFETY: the mapping is the engine's; the advice changes no contents.
    unsafe { mman::madvise(run.addr as *mut u8, run.len, MADV_COLD) == Err(Errno::EINVAL) }
}

/// Touches a huge page and gives it back. If there is none, or no room for it, nothing is lost.
fn warm_up() {
    let len = 2 * PAGEBLOCK;
    let Ok(at) = mman::mmap_anonymous(len, 0) else { return };
    let block = at.map_addr(|addr| addr.next_multiple_of(PAGEBLOCK));
    // A child that is forked meanwhile must not keep it: it has no thread that would give it back.
    // SAFETY: the pageblock lies inside this function's mapping, which nobody else knows.
    let is_advised = unsafe {
        mman::madvise(at, len, mman::MADV_DONTFORK).and_then(|()| mman::madvise(block, PAGEBLOCK, mman::MADV_HUGEPAGE))
    };
    if is_advised.is_ok() {
        // SAFETY: as above; a write to a mapping that may be written.
        unsafe { block.write_volatile(1) };
    }
    // SAFETY: as above; nothing points into it any more.
    let _ = unsafe { mman::munmap(at, len) };
}

/// What follows where the page table cannot be read: a limit of open files, or the lack of memory, may be over soon.
fn without_table(why: Errno) -> Collapse {
    match why {
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Collapse::Short,
        _ => Collapse::Never,
    }
}

/// Whether all pages of `run` have memory, and of this process alone. An error: it cannot be told.
fn is_own(run: Run) -> Result<bool> {
    own_pages(run).map(|pages| pages.iter().all(|&word| word == u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::mman::{mmap_anonymous, munmap};
    use weir_core::base::units::{PAGE, PAGEBLOCK_PAGES};

    /// Calls `f` with a pageblock, unmapped afterwards.
    fn with_pageblock(f: impl FnOnce(Run)) {
        let at = mmap_anonymous(2 * PAGEBLOCK, 0).unwrap();
        f(Run { addr: (at as usize).next_multiple_of(PAGEBLOCK), len: PAGEBLOCK });
        // SAFETY: nothing uses it any more.
        unsafe { munmap(at, 2 * PAGEBLOCK) }.unwrap();
    }

    fn write(run: Run) {
        for page in 0..PAGEBLOCK_PAGES {
            // SAFETY: inside the mapping, which nothing else uses.
            unsafe { ((run.addr + page * PAGE) as *mut usize).write_volatile(page + 1) };
        }
    }

    #[test]
    fn a_pageblock_is_left_alone_before_it_was_touched_and_keeps_its_contents() {
        with_pageblock(|run| {
            assert_eq!(collapse(run), Collapse::Unfit);
            write(run);
            // It depends on the machine whether there is a huge page.
            collapse(run);
            for page in 0..PAGEBLOCK_PAGES {
                // SAFETY: as in `write`.
                assert_eq!(unsafe { ((run.addr + page * PAGE) as *const usize).read_volatile() }, page + 1);
            }
        });
    }

    #[test]
    fn memory_that_the_program_locked_is_left_alone() {
        with_pageblock(|run| {
            write(run);
            if let Err(why) = mman::mlock(run.addr as *mut u8, run.len) {
                return weir_testing::skip!("mlock says {why} (ulimit -l)");
            }
            // An old kernel puts none anywhere.
            let outcome = collapse_under(|| HugePages::Madvise, run);
            assert!([Collapse::Unfit, Collapse::Never].contains(&outcome), "{outcome:?}");
        });
    }

    #[test]
    fn none_is_made_while_the_machine_is_to_have_none() {
        with_pageblock(|run| {
            write(run);
            let outcome = collapse_under(|| HugePages::Never, run);
            assert!([Collapse::Short, Collapse::Never].contains(&outcome), "{outcome:?}");
        });
    }

    #[test]
    fn a_limit_of_open_files_forbids_no_later_collapse() {
        let outcomes = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EACCES, Errno::EPERM].map(without_table);
        use Collapse::{Never, Short};
        assert_eq!(outcomes, [Short, Short, Short, Never, Never]);
    }

    #[test]
    fn a_pageblock_that_was_advised_to_have_none_says_nothing_of_the_others() {
        with_pageblock(|run| {
            write(run);
            // SAFETY: the mapping is the test's; the advice changes no contents.
            if unsafe { mman::madvise(run.addr as *mut u8, run.len, mman::MADV_NOHUGEPAGE) }.is_err() {
                return weir_testing::skip!("this kernel has no huge pages");
            }
            assert_eq!(collapse(run), Collapse::Unfit);
        });
    }

    #[test]
    fn what_another_process_shares_is_left_alone() {
        with_pageblock(|run| {
            write(run);
            let Ok(is_own_here) = is_own(run) else {
                return weir_testing::skip!("no page table can be read here");
            };
            assert!(is_own_here);
            // SAFETY: the child waits for its end, and calls nothing else.
            let child = unsafe { libc::fork() };
            if child == 0 {
                loop {
                    // SAFETY: it returns when a signal comes, which ends this process.
                    unsafe { libc::pause() };
                }
            }
            assert_eq!(collapse(run), Collapse::Unfit);
            // SAFETY: the child is this test's.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, core::ptr::null_mut(), 0);
            }
            assert_eq!(is_own(run), Ok(true));
        });
    }
}
