//! Memory of the page of counters. It is private to the process, or a page of a file that outlives it (here), or of one that is
//! gone with it (`Sharing`).
//!
//! `weir run` makes a file of pages and names it in `WEIR_STATS`; every process under it takes a page. The environment is not
//! trusted to name the right thing. Writing to a file that another user chose destroys it. A mapped file that another process can
//! cut short ends this one by `SIGBUS`. So only one kind of file is taken, a memfd:
//!
//! - It has no name in any file system, so nothing on a disk can be it. The variable holds `/proc/PID/fd/N`, a descriptor of the
//!   `weir run` that made it. The kernel lets only root follow that link, and the same user with no fewer capabilities. The link
//!   is gone with `weir run`, however that ends. So no file is left behind, and a later process finds nothing and goes without.
//! - It is sealed against shrinking, so that no mapping of it can come to lie beyond its end.
//! - Owner (this user or root), permissions, length, and the first page's magic and version are read before the first
//!   write, from the open descriptor. The link is first opened by `O_PATH`, which touches nothing: if the number is
//!   another process's by now, its FIFOs, terminals and devices notice nothing.
//!
//! Whatever fails, the counters stay private and the program runs.
//!
//! The file is opened once, at the start. A forked child's page comes from the mapped header by memory calls alone. By then the
//! program may have changed its user, root or namespaces, or may be killed for opening a file.

use crate::messages;
use crate::os::fd::{self, FileKind};
use crate::os::file::memfd;
use crate::os::file::path::FixedPath;
use crate::os::file::text::number;
use crate::os::mman::{
    self, MADV_POPULATE_WRITE, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED,
    MREMAP_FIXED, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE,
};
use crate::os::page;
use crate::os::process;
use crate::os::rights::sandbox::Sandbox;
use crate::os::signals;
use crate::os::syscall::{Errno, Result};
use crate::platform::statics::{STATS, TUNABLES};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};
use linux_raw_sys::general::F_SEAL_SHRINK;
use weir_core::base::units::PAGE;
use weir_core::telemetry::stats::{COUNTER_BYTES, FILE_PAGES, Header, Opening, PAGE_BYTES, Stats};

/// Where the counters are; where they will be, while a page is put over them ([`put_noted`]).
static SHARED: AtomicI32 = AtomicI32::new(PRIVATE);
const PRIVATE: i32 = 0;
const IN_FILE: i32 = 1;
/// A forked child's: private, and to be in the file once it is worth it.
const UNCLAIMED: i32 = 2;
/// In a file of the process's own.
const OWN_FILE: i32 = 3;

/// The file's first page, mapped for the rest of the process's life; null without a file.
static HEADER: AtomicPtr<Header> = AtomicPtr::new(null_mut());

/// Whether the counters outlive the process.
pub(crate) fn is_shared() -> bool {
    SHARED.load(Relaxed) == IN_FILE
}

/// Whether they are in the file that outlives it, or will be.
pub(crate) fn is_in_file() -> bool {
    matches!(SHARED.load(Relaxed), IN_FILE | UNCLAIMED)
}

/// The file's first page, if the counters are in the file.
pub(super) fn header() -> Option<&'static Header> {
    // SAFETY: null, or the file's first page, which stays mapped.
    if is_shared() { unsafe { HEADER.load(Relaxed).as_ref() } } else { None }
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
        take_page(PRIVATE);
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
    let file = fd::fstat(looked_at).ok().filter(is_fit).and_then(|_| open_again(looked_at));
    let _ = fd::close(looked_at);
    let file = file?;
    // Once more: another thread may have put something else in place of the first descriptor.
    let fits = fd::fstat(file).is_ok_and(|found| is_fit(&found))
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

fn is_fit(found: &fd::Stat) -> bool {
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

/// Makes a free page of the file, if there is one, the page of the counters, where they are as `from` says. If that fails
/// they stay private, and it is not tried again.
fn take_page(from: i32) {
    let _ = put_noted(&SHARED, Move { from, to: IN_FILE, failed: PRIVATE }, || {
        // SAFETY: null, or the file's first page, which stays mapped.
        let header = unsafe { HEADER.load(Relaxed).as_ref() }.ok_or(Errno::ENOENT)?;
        let number = header.take_page().ok_or(Errno::ENOMEM)?;
        put_over_counters(map_page(header, number).ok_or(Errno::ENOMEM)?)
    });
}

/// Where the counters are, where they are put, and where they are if that fails.
struct Move {
    from: i32,
    to: i32,
    failed: i32,
}

/// Has a page put over the counters by `put`, if they are where they should be: of threads that try, one does.
///
/// It is noted before it is done. A thread that forks in between has a child that leaves a page which is private
/// already. In the other order the child could have the shared page, take it for private, and count into its parent's.
fn put_noted(shared: &AtomicI32, way: Move, put: impl FnOnce() -> Result<()>) -> Result<()> {
    shared.compare_exchange(way.from, way.to, Relaxed, Relaxed).map_err(|_| Errno::EBUSY)?;
    put().inspect_err(|_| shared.store(way.failed, Relaxed))
}

/// Maps the first `count` pages of the file by its first page, which is enough: `mremap` of a shared mapping with an old length of
/// 0 makes a second mapping of the same file from the same place on. That can be as long as one likes (mremap(2)).
pub(super) fn map_pages(header: &Header, count: usize) -> Option<*mut u8> {
    let first = core::ptr::from_ref(header).cast_mut().cast::<u8>();
    // SAFETY: adds a mapping where there is none, and leaves the first page as it is.
    unsafe { mman::mremap(first, 0, count * PAGE_BYTES, MREMAP_MAYMOVE, null_mut()) }.ok()
}

/// Maps page `number` of the file.
fn map_page(header: &Header, number: usize) -> Option<*mut u8> {
    let all = map_pages(header, number + 1)?;
    let page = all.wrapping_add(number * PAGE_BYTES);
    // SAFETY: all but the last page of a mapping just made.
    let _ = unsafe { mman::munmap(all, number * PAGE_BYTES) };
    // SAFETY: the page was mapped above, and no code uses it yet.
    match unsafe { populate(page, COUNTER_BYTES) } {
        Ok(()) => Some(page),
        Err(_) => {
            // SAFETY: the page was mapped above, and no code uses it yet.
            let _ = unsafe { mman::munmap(page, PAGE_BYTES) };
            None
        }
    }
}

/// Has memory behind the first `len` bytes of a shared page: where there is none, the first touch would end the process.
/// Kernels before 5.14 cannot.
///
/// # Safety
/// A mapping of the caller's.
pub(crate) unsafe fn populate(page: *mut u8, len: usize) -> Result<()> {
    // SAFETY: the caller's mapping; no contents change.
    match unsafe { mman::madvise(page, len.next_multiple_of(PAGE), MADV_POPULATE_WRITE) } {
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Has memory behind the tables, before they are written; `false`: there is none.
pub(crate) fn prepare_tables() -> bool {
    if SHARED.load(Relaxed) != IN_FILE {
        return true;
    }
    let page = (&raw const STATS).cast_mut().cast::<u8>();
    // SAFETY: the page of counters is a mapping of the file's.
    unsafe { populate(page, PAGE_BYTES) }.is_ok()
}

/// Makes a fresh page, mapped elsewhere, the page of the counters, which it begins as a copy of. An error: it is unmapped.
fn put_over_counters(page: *mut u8) -> Result<()> {
    let counters = (&raw const STATS).cast_mut().cast::<u8>();
    // A kernel whose pages are longer would put other statics' memory under the new page as well.
    if !(counters as usize | PAGE_BYTES).is_multiple_of(page::bytes()) {
        // SAFETY: it is given up.
        let _ = unsafe { mman::munmap(page, PAGE_BYTES) };
        return Err(Errno::EINVAL);
    }
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    // SAFETY: the counters are a page of atomic words, which no code but theirs uses. So is the fresh one, which has the same
    // words in it by then. The mapping is moved onto the counters' address and keeps its length.
    let move_it = || unsafe { mman::mremap(page, PAGE_BYTES, PAGE_BYTES, flags, counters) }.map(drop);
    // SAFETY: as above; the fresh page is this function's to unmap.
    unsafe { put_over(counters, page, move_it) }
}

/// Puts `page` over `counters` by `move_it`, with the counts in it. The tables are not copied: their writer writes them anew.
///
/// # Safety
/// Both are mappings of [`PAGE_BYTES`], of words that threads may use by atomic operations: any number of threads (`counters`) or
/// no thread yet (`page`). `page` is given up if it cannot be moved.
unsafe fn put_over(counters: *mut u8, page: *mut u8, move_it: impl FnOnce() -> Result<()>) -> Result<()> {
    // SAFETY: the first parts of two mappings. A count that another thread makes in between is lost, and no more.
    unsafe { copy_counts(counters, page) };
    let moved = move_it();
    if moved.is_err() {
        // SAFETY: the caller's two mappings; the fresh one is given up.
        unsafe { fill_hole(counters, page) };
    }
    moved
}

/// # Safety
/// Both are mapped, and [`COUNTER_BYTES`] long at least.
unsafe fn copy_counts(from: *mut u8, to: *mut u8) {
    // SAFETY: as the caller promises; two different mappings do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(from.cast::<u64>(), to.cast::<u64>(), COUNTER_BYTES / 8) };
}

/// After a move that failed: `mremap` unmaps what lies at the new address first, and may find only then that it has no memory for
/// the move (mm/mremap.c, `mremap_to`). Then nothing is where the counters were, and the next count would end the process. So
/// private memory goes there, with the counts of the fresh page. A thread that counts between the kernel's failure and this call
/// cannot be helped.
///
/// Usually the kernel refused before it unmapped anything, as the process has nearly all the mappings it may have. It refuses
/// another for that reason before it looks what is at the address. So the fresh page is unmapped first, and whether the counters
/// are there is asked of `mincore`.
///
/// # Safety
/// `page` has the counts in it, and is given up; `counters` is the counters' address.
unsafe fn fill_hole(counters: *mut u8, page: *mut u8) {
    let mut counts = Counts::new();
    // SAFETY: the caller's page.
    unsafe { copy_counts(page, counts.as_mut_ptr()) };
    // SAFETY: the caller gives it up.
    let _ = unsafe { mman::munmap(page, PAGE_BYTES) };
    // SAFETY: what is there is not replaced.
    match unsafe { map_over(counters, MAP_PRIVATE | MAP_FIXED_NOREPLACE) } {
        // SAFETY: both are mapped now.
        Ok(filled) if filled == counters => unsafe { copy_counts(counts.as_mut_ptr(), counters) },
        // The same on a kernel before 4.17, which takes the address for a wish.
        // SAFETY: mapped just now.
        Ok(elsewhere) => drop(unsafe { mman::munmap(elsewhere, PAGE_BYTES) }),
        Err(Errno::EEXIST) => {}
        Err(error) if is_hole(counters) => messages::counters_are_lost(error),
        Err(_) => {}
    }
}

/// Room for the counts of a page, as words.
struct Counts([u64; COUNTER_BYTES / 8]);

impl Counts {
    const fn new() -> Self {
        Self([0; COUNTER_BYTES / 8])
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Zeroed memory at the counters' address.
///
/// # Safety
/// With `MAP_FIXED` the counters are the caller's to replace.
unsafe fn map_over(counters: *mut u8, flags: u32) -> Result<*mut u8> {
    // SAFETY: as the caller promises.
    unsafe { mman::mmap(counters, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0) }
}

/// Whether a part of the page is not mapped.
fn is_hole(page: *mut u8) -> bool {
    mman::mincore(page, &mut [0; PAGE_BYTES / PAGE][..PAGE_BYTES / page::bytes()], page::bytes()) == Err(Errno::ENOMEM)
}

/// Puts a fresh page of the process's own file in the place of private counters, or of those in an earlier such file.
pub(crate) fn share(page: *mut u8) -> Result<()> {
    let from = SHARED.load(Relaxed);
    put_noted(&SHARED, Move { from, to: OWN_FILE, failed: from }, || put_over_counters(page))
}

/// Makes counters in the process's own file private again.
pub(crate) fn unshare() {
    if SHARED.load(Relaxed) == OWN_FILE && mman::mmap_anonymous(PAGE_BYTES, 0).and_then(put_over_counters).is_ok() {
        SHARED.store(PRIVATE, Relaxed);
    }
}

/// In a forked child: a page of its own, with counts from zero and the parent's gauges.
pub(crate) fn leave_parents() {
    let shared = SHARED.load(Relaxed);
    if matches!(shared, IN_FILE | OWN_FILE) {
        let counters = (&raw const STATS).cast_mut().cast::<u8>();
        // SAFETY: a page of atomic words that only this thread uses, as a forked child has no other.
        let is_private = unsafe { replace(counters) };
        let private = if shared == IN_FILE { UNCLAIMED } else { PRIVATE };
        // Its own children have to leave shared memory as well.
        SHARED.store(if is_private { private } else { OWN_FILE }, Relaxed);
    }
    STATS.reset_totals();
    STATS.pid.store(process::getpid(), Relaxed);
}

/// Replaces shared counters by memory of this process alone, with the counts in it. `false`: its children share it.
///
/// A mapping that takes the place of one needs no room for another, but in two cases. The process may have more addresses than
/// it may have by now (`RLIMIT_AS`), or have reached the system's bound for memory that is promised. Then the kernel maps
/// nothing, and moves what is there: the spare. Or it has as many mappings as it may have (`vm.max_map_count`). Then the old
/// one is unmapped first. Each of these may leave nothing there for a moment, as a mapping does that fails late (before Linux
/// 6.12). No signal's handler may count then.
///
/// # Safety
/// A mapping of [`PAGE_BYTES`] that only this thread uses.
unsafe fn replace(counters: *mut u8) -> bool {
    // Shared memory does not count against the limit of data.
    let map = || {
        // SAFETY: the caller's page is replaced.
        let private = unsafe { map_over(counters, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED) };
        private.map(|_| true).or_else(|_| {
            // SAFETY: as above.
            unsafe { map_over(counters, MAP_SHARED | MAP_NORESERVE | MAP_FIXED) }.map(|_| false)
        })
    };
    let mut counts = Counts::new();
    // SAFETY: the caller's page.
    unsafe { copy_counts(counters, counts.as_mut_ptr()) };
    let mask = signals::set_signal_mask(!0);
    // SAFETY: the caller's page is replaced.
    let is_private = map().or_else(|_| unsafe { SPARE.put_over(counters) }.map(|()| true)).or_else(|_| {
        // SAFETY: the caller's page, which is mapped anew.
        let _ = unsafe { mman::munmap(counters, PAGE_BYTES) };
        map()
    });
    let is_private = is_private.unwrap_or_else(|error| messages::counters_are_lost(error));
    // SAFETY: mapped anew.
    unsafe { copy_counts(counts.as_mut_ptr(), counters) };
    if let Ok(mask) = mask {
        let _ = signals::set_signal_mask(mask);
    }
    is_private
}

/// Memory for the counters of a child for which the kernel maps none, aligned as they are. Nothing touches it before, so that it
/// takes no memory.
#[repr(C)]
struct Spare(UnsafeCell<[u8; PAGE_BYTES]>, [Stats; 0]);

// SAFETY: nothing reads or writes the page where it is, and one caller moves it.
unsafe impl Sync for Spare {}

static SPARE: Spare = Spare(UnsafeCell::new([0; PAGE_BYTES]), []);

impl Spare {
    /// Moves it over the counters. An error: it was moved before, or the kernel has no room for a mapping more.
    ///
    /// # Safety
    /// The counters are the caller's to replace.
    unsafe fn put_over(&self, counters: *mut u8) -> Result<()> {
        /// Here or in a parent. What lies at its address from then on is not Weir's.
        static IS_GONE: AtomicBool = AtomicBool::new(false);
        if IS_GONE.swap(true, Relaxed) {
            return Err(Errno::ENOMEM);
        }
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        // SAFETY: the page is not moved yet, and nothing uses it; the other one is the caller's.
        unsafe { mman::mremap(self.0.get().cast(), PAGE_BYTES, PAGE_BYTES, flags, counters) }.map(drop)
    }
}

/// In a forked child that does enough to be worth it: takes a page of the file. Most children only `exec`.
pub(crate) fn take_late() {
    if SHARED.load(Relaxed) == UNCLAIMED {
        take_page(UNCLAIMED);
    }
}

/// The page of counters, open to whoever may look into the process: `weir stat`. It is used by the background thread alone, in
/// whose table the file is.
///
/// That thread makes a sealed memfd, puts it in place of the counters' page, and keeps its descriptor for as long as it runs.
/// The descriptor is in the thread's own table, so that the program neither sees nor closes it, and no child inherits it. A
/// reader finds it as `/proc/PID/task/TID/fd/N`, which the kernel opens for who may read the process's memory: the same user,
/// and root. No name, no file and no mapping is left when the process has ended.
///
/// A process does not share its counters if it has no background thread, as its heap is small or `background` is 0. Nor does
/// one under a filter of its own ([`Sandbox`]), or where `publish` is 0. A process that may trace this one can read them all the
/// same, where they lie.
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
        } else if is_in_file() {
            // It is in the file of `weir run`.
            (Opening::Open, 0)
        } else if !self.is_private || Sandbox::look().ok().is_none_or(|sandbox| sandbox.is_programs_own()) {
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
        let shared = map(file).and_then(share);
        match shared {
            Ok(()) => self.file = Some(file),
            Err(_) => drop(fd::close(file)),
        }
        shared
    }

    fn end(&mut self) {
        // It may be that of an earlier thread, the descriptor of which ended with it.
        unshare();
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
    let made = unsafe { populate(page, PAGE_BYTES) }.and_then(|()| memfd::seal(file));
    if made.is_err() {
        // SAFETY: the mapping made above, the address of which nothing else has.
        let _ = unsafe { mman::munmap(page, PAGE_BYTES) };
    }
    made.map(|()| page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::mman::mmap_anonymous;

    #[test]
    fn where_the_counters_will_be_is_noted_before_a_fork_can_copy_them() {
        let shared = AtomicI32::new(UNCLAIMED);
        let seen_by = |result: Result<()>| {
            let mut seen = None;
            let way = Move { from: UNCLAIMED, to: IN_FILE, failed: PRIVATE };
            let done = put_noted(&shared, way, || {
                seen = Some(shared.load(Relaxed));
                result
            });
            (done, seen, shared.load(Relaxed))
        };
        assert_eq!(seen_by(Err(Errno::ENOMEM)), (Err(Errno::ENOMEM), Some(IN_FILE), PRIVATE));
        // Another thread has done it, or has failed.
        assert_eq!(seen_by(Ok(())), (Err(Errno::EBUSY), None, PRIVATE));
        shared.store(UNCLAIMED, Relaxed);
        assert_eq!(seen_by(Ok(())), (Ok(()), Some(IN_FILE), IN_FILE));
    }

    #[test]
    fn a_move_that_fails_half_way_leaves_counters_that_count() {
        for is_unmapped in [true, false] {
            let (counters, page) = (mmap_anonymous(PAGE_BYTES, 0).unwrap(), mmap_anonymous(PAGE_BYTES, 0).unwrap());
            let move_it = || {
                if is_unmapped {
                    // SAFETY: only this test uses it. So the kernel does it, before it finds that it has no memory.
                    unsafe { mman::munmap(counters, PAGE_BYTES) }.unwrap();
                }
                Err(Errno::ENOMEM)
            };
            // SAFETY: two mappings made here.
            unsafe {
                counters.cast::<u64>().write(7);
                assert_eq!(put_over(counters, page, move_it), Err(Errno::ENOMEM));
                assert_eq!(counters.cast::<u64>().read(), 7);
                counters.add(PAGE_BYTES - 1).write(1);
                mman::munmap(counters, PAGE_BYTES).unwrap();
            }
        }
    }

    #[test]
    fn a_child_replaces_shared_counters_and_keeps_the_counts() {
        let flags = MAP_SHARED | MAP_ANONYMOUS;
        // SAFETY: without MAP_FIXED nothing that exists is replaced.
        let page = unsafe { mman::mmap(null_mut(), PAGE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) }.unwrap();
        // SAFETY: a second mapping of the same memory, and both are this test's alone.
        unsafe {
            let parents = mman::mremap(page, 0, PAGE_BYTES, MREMAP_MAYMOVE, null_mut()).unwrap();
            page.cast::<u64>().write(7);
            assert!(replace(page));
            assert_eq!(page.cast::<u64>().read(), 7);
            page.cast::<u64>().write(8);
            assert_eq!(parents.cast::<u64>().read(), 7);
            mman::munmap(page, PAGE_BYTES).unwrap();
            assert!(is_hole(page) && !is_hole(parents));
            mman::munmap(parents, PAGE_BYTES).unwrap();
        }
    }

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
