//! The pages of the other processes under the same `weir run`: what they tell of themselves, their cost curves among it.
//!
//! All pages lie in one file (`stats_page`), so the whole of it is mapped for the length of a look. A process that has ended leaves
//! its page as it was, so the kernel is asked for each, by a descriptor. A zombie has ended as well. A process that has executed
//! another program has a page of each, of which the later counts. Where a number is another namespace's,
//! or another process's by now, a page is left out or taken in wrongly: answers to pressure are not the best then, and no more.

use crate::os::fd::{self, POLLIN, PollFd};
use crate::os::mman;
use crate::os::process::{getpid, process_descriptor};
use crate::os::rights::sandbox::Sandbox;
use crate::os::signals::kill;
use crate::os::syscall::Errno;
use crate::platform::stats_page::{header, map_pages};
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::{FILE_PAGES, Header, MAGIC, PAGE_BYTES, Stats, VERSION};

/// Others that are looked at in one look. A thousand processes that hear of the same event would make a million calls.
const MOST: usize = 256;

/// Calls `each` with the page of each other process that lives, has a background thread, and has told of its memory. Under a filter
/// of the program's own it looks at none. Returns about how many more such there are than it looks at.
pub(crate) fn each(each: &mut dyn FnMut(&Stats)) -> usize {
    let Some(header) = header() else { return 0 };
    let may_look = Sandbox::look().is_ok_and(|sandbox| !sandbox.is_programs_own());
    if may_look { each_in(header, getpid(), is_alive, each) } else { 0 }
}

/// Whether a process is there and has not ended.
fn is_alive(pid: u32) -> bool {
    match process_descriptor(pid) {
        Ok(process) => {
            let mut ended = [PollFd { fd: process, events: POLLIN, revents: 0 }];
            let polled = fd::ppoll(&mut ended, Some(0));
            let _ = fd::close(process);
            polled.is_err() || ended[0].revents == 0
        }
        Err(Errno::ESRCH) => false,
        // No descriptor is to be had, or none of this kind (before Linux 5.3).
        Err(_) => kill(pid as i32, 0) != Err(Errno::ESRCH),
    }
}

fn each_in(header: &Header, own: u32, is_alive: impl Fn(u32) -> bool, each: &mut dyn FnMut(&Stats)) -> usize {
    let count = header.next.load(Relaxed).min(FILE_PAGES as u64) as usize;
    let Some(pages) = map_pages(header, count) else { return 0 };
    let (mut seen, pages_there, mut more) = (ArrayVec::<u32, MOST>::new(), count.saturating_sub(1), 0);
    // The latest first. Of too many, from a place that is this process's own, so that not all look at the same.
    let first = if pages_there > MOST { own as usize } else { 0 };
    for place in 0..pages_there {
        let number = count - 1 - (place + first) % pages_there;
        // SAFETY: a page of the mapping, of a file that cannot get shorter, made of atomics for which any bytes are a value.
        let page = unsafe { &*pages.wrapping_add(number * PAGE_BYTES).cast::<Stats>() };
        let (pid, has_thread) = (page.pid.load(Relaxed), page.background.load(Relaxed) != 0);
        let is_claimed = page.magic.load(Relaxed) == MAGIC && page.version.load(Relaxed) == VERSION;
        // Who has measured has put memory behind the tables, so that reading them takes none.
        let is_told = page.measured.at.load(Relaxed) > 0;
        if is_claimed
            && is_told
            && has_thread
            && pid != own
            && i32::try_from(pid).is_ok_and(|pid| pid > 0)
            && !seen.contains(&pid)
            && is_alive(pid)
        {
            each(page);
            seen.push(pid);
        }
        if seen.is_full() {
            // Of the others as many as of those that were looked at.
            more = (pages_there - place - 1) * MOST / (place + 1);
            break;
        }
    }
    // SAFETY: the mapping made above, of which nothing is used any more.
    let _ = unsafe { mman::munmap(pages, count * PAGE_BYTES) };
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::file::memfd;
    use crate::os::mman::{MAP_SHARED, PROT_READ, PROT_WRITE};
    use core::ptr::null_mut;
    use std::vec::Vec;

    /// A file of so many pages, the first for the header, and each other one for a process that lives: the number is a hundredth of
    /// its pid. `test` gets its beginning.
    fn with_file(pages: usize, test: impl FnOnce(&Header, &dyn Fn(usize) -> &'static Stats)) {
        let len = pages * PAGE_BYTES;
        let file = memfd::create(c"pages", len).unwrap();
        // SAFETY: without MAP_FIXED nothing that exists is replaced.
        let at = unsafe { mman::mmap(null_mut(), len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) }.unwrap();
        // SAFETY: the first page of the mapping, of zeros so far, made of atomics alone.
        let header = unsafe { &*at.cast::<Header>() };
        // SAFETY: as above, of another page; `test` is done with it when it ends.
        let page = |number: usize| unsafe { &*at.add(number * PAGE_BYTES).cast::<Stats>() };
        header.init();
        for number in 1..pages {
            assert_eq!(header.take_page(), Some(number));
            let page = page(number);
            page.magic.store(MAGIC, Relaxed);
            page.version.store(VERSION, Relaxed);
            page.background.store(1, Relaxed);
            page.measured.at.store(1, Relaxed);
            page.pid.store(number as u32 * 100, Relaxed);
        }
        if let Some(again) = map_pages(header, pages) {
            // SAFETY: the mapping just made, which nothing uses.
            unsafe { mman::munmap(again, len) }.unwrap();
            test(header, &page);
        } else {
            weir_testing::skip!("the kernel knows no second mapping of a file's pages");
        }
        // SAFETY: nothing uses it any more.
        unsafe { mman::munmap(at, len) }.unwrap();
        crate::os::fd::close(file).unwrap();
    }

    #[test]
    fn others_that_live_and_have_told_of_their_memory_are_looked_at() {
        with_file(8, |header, page| {
            // The own one; and of the others one is of another version, one tells nothing yet, one has no thread, one is gone, and one is
            // the page of a program before it executed another.
            let own = 100;
            page(2).version.store(VERSION + 1, Relaxed);
            page(3).measured.at.store(0, Relaxed);
            page(6).pid.store(700, Relaxed);
            page(4).background.store(0, Relaxed);
            let mut seen = Vec::new();
            let more = each_in(header, own, |pid| pid != 500, &mut |page| seen.push(page.pid.load(Relaxed)));
            seen.sort_unstable();
            assert_eq!((seen, more), (Vec::from([700]), 0));
        });
    }

    #[test]
    fn of_too_many_it_says_about_how_many_there_are() {
        with_file(3 * MOST + 1, |header, _| {
            for (ended, left) in [(0, 2 * MOST), (2, MOST / 2)] {
                let mut seen = 0;
                // Of two pages one is of a process that has ended.
                let more =
                    each_in(header, 7, |pid| ended == 0 || (pid / 100).is_multiple_of(ended), &mut |_| seen += 1);
                assert!(seen == MOST && more.abs_diff(left) <= 1, "{seen} and {more}");
            }
        });
    }

    #[test]
    fn a_process_without_a_file_has_no_neighbours() {
        each(&mut |_| panic!("none is known"));
    }
}
