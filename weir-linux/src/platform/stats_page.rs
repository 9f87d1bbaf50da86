//! The page of counters, put where another process can read it after this one has ended.
//!
//! `weir run` makes a file of pages and names it in `WEIR_STATS`; every process under it takes a page. The environment
//! is not trusted to name the right thing: writing to a file that another user chose destroys it, and a mapped file
//! that another process can cut short ends this one by `SIGBUS`. So only one kind of file is taken, a memfd:
//!
//! - It has no name in any file system, so nothing on a disk can be it. The variable holds `/proc/PID/fd/N`, a
//!   descriptor of the `weir run` that made it. The kernel lets only root follow that link, and the same user with no
//!   fewer capabilities; and it is gone with `weir run`, however that ends: no file is left behind, and a later process
//!   finds nothing and goes without.
//! - It is sealed against shrinking, so that no mapping of it can come to lie beyond its end.
//! - Owner (this user or root), permissions, length, and the first page's magic and version are read before the first
//!   write, from the open descriptor. The link is first opened by `O_PATH`, which touches nothing: if the number is
//!   another process's by now, its FIFOs, terminals and devices notice nothing.
//!
//! Whatever fails, the counters stay private and the program runs.
//!
//! The file is opened once, at the start. A forked child's page comes from the mapped header by memory calls alone,
//! since by then the program may have changed its user, root or namespaces, or may be killed for opening a file.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering::Relaxed};
use linux_raw_sys::general::F_SEAL_SHRINK;
use weir_core::stats::{FILE_PAGES, Header, PAGE_BYTES};

use crate::os::fd::{self, FileKind};
use crate::os::mman::{self, MADV_POPULATE_WRITE, MAP_SHARED, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE};
use crate::os::path::FixedPath;
use crate::os::process;
use crate::os::syscall::Errno;
use crate::os::text::number;
use crate::platform::statics::STATS;

/// Where the counters are.
static SHARED: AtomicI32 = AtomicI32::new(PRIVATE);
const PRIVATE: i32 = 0;
const IN_FILE: i32 = 1;
/// A forked child's: private, and to be in the file once it is worth it.
const UNCLAIMED: i32 = 2;

/// The file's first page, mapped for the rest of the process's life; null without a file.
static HEADER: AtomicPtr<Header> = AtomicPtr::new(null_mut());

/// Whether the counters outlive the process.
pub(crate) fn is_shared() -> bool {
    SHARED.load(Relaxed) == IN_FILE
}

/// Takes a page of the file that the environment names, if it is a statistics file.
pub(crate) fn take(named: &[u8]) {
    let Some(file) = open(named) else { return };
    // SAFETY: without MAP_FIXED nothing that exists is replaced.
    let header = unsafe { mman::mmap(null_mut(), PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) };
    let _ = fd::close(file);
    let Ok(header) = header.map(<*mut u8>::cast::<Header>) else { return };
    // SAFETY: a page of a file that cannot get shorter, of atomics only, for which any bytes are a value.
    if unsafe { (*header).is_valid() } {
        HEADER.store(header, Relaxed);
        take_page();
    } else {
        // SAFETY: just mapped here.
        let _ = unsafe { mman::munmap(header.cast(), PAGE_BYTES) };
    }
}

/// Opens `/proc/PID/fd/N` for reading and writing if what is there can be a statistics file.
fn open(named: &[u8]) -> Option<i32> {
    if !is_descriptor(named) {
        return None;
    }
    let looked_at = fd::open(FixedPath::from_parts(&[named])?.as_c_str(), fd::O_PATH).ok()?;
    let file = fd::identity(looked_at).ok().filter(is_fit).and_then(|_| open_again(looked_at));
    let _ = fd::close(looked_at);
    let file = file?;
    // Once more: another thread may have put something else in place of the first descriptor.
    let fits = fd::identity(file).is_ok_and(|found| is_fit(&found))
        && fd::seals(file).is_ok_and(|seals| seals & F_SEAL_SHRINK != 0)
        && fd::huge_page(file) == Ok(None);
    if !fits {
        let _ = fd::close(file);
    }
    fits.then_some(file)
}

/// Whether the text is `/proc/PID/fd/N`.
fn is_descriptor(named: &[u8]) -> bool {
    let is_number = |part: Option<&[u8]>| part.is_some_and(|p| p.iter().all(u8::is_ascii_digit) && number(p).is_some());
    let Some(rest) = named.strip_prefix(b"/proc/") else { return false };
    let mut parts = rest.split(|&b| b == b'/');
    is_number(parts.next()) && parts.next() == Some(b"fd") && is_number(parts.next()) && parts.next().is_none()
}

fn is_fit(found: &fd::Identity) -> bool {
    found.kind == FileKind::Regular
        && found.links == 0
        && found.size == (FILE_PAGES * PAGE_BYTES) as u64
        && found.mode & 0o022 == 0
        && (found.owner == 0 || found.owner == process::geteuid())
}

/// Opens what an `O_PATH` descriptor stands for. By this thread's own table: Weir's threads do not share the program's.
fn open_again(descriptor: i32) -> Option<i32> {
    let path = FixedPath::format(format_args!("/proc/thread-self/fd/{descriptor}"))?;
    fd::open(path.as_c_str(), fd::O_RDWR | fd::O_NONBLOCK | fd::O_NOCTTY).ok()
}

/// Makes a free page of the file, if there is one, the page of the counters.
fn take_page() {
    // SAFETY: null, or the file's first page, which stays mapped.
    let Some(header) = (unsafe { HEADER.load(Relaxed).as_ref() }) else { return };
    let Some(number) = header.take_page() else { return };
    if map_page(header, number).is_some_and(put_over_counters) {
        SHARED.store(IN_FILE, Relaxed);
    }
}

/// Maps page `number` of the file by its first page, which is enough: `mremap` of a shared mapping with an old length
/// of 0 makes a second mapping of the same file from the same place on, as long as one likes (mremap(2)).
fn map_page(header: &Header, number: usize) -> Option<*mut u8> {
    let first = core::ptr::from_ref(header).cast_mut().cast::<u8>();
    // SAFETY: adds a mapping where there is none, and leaves the first page as it is.
    let all = unsafe { mman::mremap(first, 0, (number + 1) * PAGE_BYTES, MREMAP_MAYMOVE, null_mut()) }.ok()?;
    let page = all.wrapping_add(number * PAGE_BYTES);
    // SAFETY: all but the last page of a mapping just made.
    let _ = unsafe { mman::munmap(all, number * PAGE_BYTES) };
    // A page that there is no memory for would end the process at its first touch. Kernels before 5.14 cannot populate
    // it. SAFETY: the page is a mapping of our own; no contents change.
    match unsafe { mman::madvise(page, PAGE_BYTES, MADV_POPULATE_WRITE) } {
        Ok(()) | Err(Errno::EINVAL) => Some(page),
        Err(_) => {
            // SAFETY: the page was mapped above, and no code uses it yet.
            let _ = unsafe { mman::munmap(page, PAGE_BYTES) };
            None
        }
    }
}

/// Makes a fresh page, mapped elsewhere, the page of the counters, which it begins as a copy of.
fn put_over_counters(page: *mut u8) -> bool {
    let counters = (&raw const STATS).cast_mut().cast::<u8>();
    // SAFETY: the counters are a page, which is copied to the fresh one and then replaced by it: the same words for all
    // who hold a reference. A count that another thread makes in between is lost, and no more.
    unsafe {
        core::ptr::copy_nonoverlapping(counters.cast::<u64>(), page.cast::<u64>(), PAGE_BYTES / 8);
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        let moved = mman::mremap(page, PAGE_BYTES, PAGE_BYTES, flags, counters).is_ok();
        if !moved {
            let _ = mman::munmap(page, PAGE_BYTES);
        }
        moved
    }
}

/// In a forked child: a page of its own, with counts from zero and the parent's gauges.
pub(crate) fn leave_parents() {
    if SHARED.load(Relaxed) == IN_FILE {
        if mman::mmap_anonymous(PAGE_BYTES, 0).is_ok_and(put_over_counters) {
            SHARED.store(UNCLAIMED, Relaxed);
            STATS.reset_totals();
        } else {
            // No memory: the counts go on into the parent's page, rather than nowhere.
            return;
        }
    }
    STATS.pid.store(process::getpid(), Relaxed);
}

/// In a forked child that does enough to be worth it: takes a page of the file. Most children only `exec`.
pub(crate) fn take_late() {
    if SHARED.load(Relaxed) == UNCLAIMED && SHARED.swap(PRIVATE, Relaxed) == UNCLAIMED {
        take_page();
    }
}

#[cfg(test)]
mod tests {
    use super::is_descriptor;

    #[test]
    fn only_a_descriptor_of_a_process_is_opened() {
        assert!(is_descriptor(b"/proc/1/fd/0") && is_descriptor(b"/proc/4194304/fd/1023"));
        for wrong in [
            &b""[..],
            b"/proc/1/fd/",
            b"/proc//fd/1",
            b"/proc/self/fd/1",
            b"/proc/1/fd/1/",
            b"/proc/1/fd/1x",
            b"/proc/1/fd/ 1",
            b"/proc/1/task/1/fd/1",
            b"/dev/shm/weir-1.stats",
            b"proc/1/fd/1",
        ] {
            assert!(!is_descriptor(wrong), "{}", wrong.escape_ascii());
        }
    }
}
