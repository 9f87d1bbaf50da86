//! Zones of the program's own: memory of a kind that `malloc` does not give, handed out in runs of pages.
//!
//! What is free in a zone goes back by what backs it, with all else that gives way: in calm times above the peak of the
//! last window, under pressure all of it.
//!
//! | zone | memory | what is free goes back by |
//! |---|---|---|
//! | [`Zone::anonymous`] | private, as the heap's | `MADV_DONTNEED` |
//! | [`Zone::from_memfd`] | a memfd or a file on tmpfs, shared with whoever maps it | punching holes into the file |
//! | the same of `MFD_HUGETLB` or on hugetlbfs | the same in huge pages of 2 MiB | the same, whole huge pages only |
//! | [`Zone::hugetlb`] | huge pages of 2 MiB from the system's pool | `MADV_DONTNEED`, whole huge pages only |
//! | [`Zone::locked`] | `mlock`ed: no page fault, no swap | not at all |
//!
//! In a forked child a zone with a memfd is the parent's: nothing is handed out or given back there.

use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_core::buddy::Pageblock;
use weir_core::page::{PAGE, PAGEBLOCK, order_of};
use weir_core::platform::{Below, Contents, Misuse, Platform, Released, Run};
use weir_core::stats;
use weir_core::user_zone::{Memory, UserZone};

pub use weir_core::user_zone::{InUse, ZoneUsage};

use weir_linux::os::fd;
use weir_linux::os::mman::{self, MAP_ANONYMOUS, MAP_FIXED, MAP_HUGETLB, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED};
use weir_linux::os::mman::{PROT_READ, PROT_WRITE};
use weir_linux::os::syscall::Errno;
use weir_linux::platform::release::Releaser;
use weir_linux::platform::statics::STATS;
use weir_linux::process::heap::HEAP;

/// The unit of a zone's length and of hot-unplug, bytes: a huge page.
pub const BLOCK: usize = PAGEBLOCK;
/// Longest run of pages, bytes.
pub const MAX_RUN: usize = 4 << 20;
/// log2 of a huge page of 2 MiB, where `mmap` wants it.
const HUGE_2MB: u32 = 21 << 26;

/// Why there is no zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneError {
    /// The length is 0 or no multiple of [`BLOCK`]; or the file is shorter.
    Length,
    /// The kernel refused the memory: for [`Zone::hugetlb`], `ENOMEM` says that the pool has too few huge pages
    /// (`vm.nr_hugepages`); for [`Zone::locked`], `EAGAIN` or `ENOMEM` that more would be locked than `ulimit -l` allows.
    Refused(Errno),
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("a zone's length is a multiple of 2 MiB, not 0, and no more than its file's"),
            Self::Refused(why) => write!(f, "the kernel refused the zone's memory: {why}"),
        }
    }
}

impl core::error::Error for ZoneError {}

/// How free memory goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    DontNeed,
    PunchHole,
    Never,
}

/// What is below a zone.
struct Backing {
    way: Way,
    /// In huge pages of the system's pool, which go whole.
    huge: bool,
    give_back: Releaser,
    refused: AtomicBool,
}

impl Below for Backing {
    fn release(&self, runs: &[Run], calm: bool) -> Released {
        match self.way {
            Way::Never => Released { runs: 0, contents: Contents::Zero, error: Errno::EPERM.0 as u32 },
            Way::DontNeed => {
                let lazily = calm && !self.huge && crate::process_tunables().report_lazily.get() != 0;
                self.give_back.release(runs, lazily)
            }
            Way::PunchHole => {
                let (done, refused) = self.give_back.punch_holes(runs);
                self.refused.store(refused.is_some(), Relaxed);
                Released { runs: done, contents: Contents::Zero, error: refused.map_or(0, |why| why.0 as u32) }
            }
        }
    }

    fn release_unit(&self) -> usize {
        if self.huge { PAGEBLOCK } else { PAGE }
    }
}

/// Where a zone's own things lie: in a mapping of their own, so that they stay where they are.
#[repr(C, align(64))]
struct Home {
    zone: UserZone,
    backing: Backing,
    memory: Run,
    len: usize,
}

/// A zone. Dropping it gives all of its memory up; runs from it cannot outlive it.
///
/// ```
/// let zone = weir::zone::Zone::anonymous(16 << 20)?;
/// let mut pages = zone.alloc(64 << 10).unwrap();
/// pages.as_mut_slice().fill(7);
/// assert_eq!(zone.usage().used, 16);
/// drop(pages);
/// weir::heap::trim();
/// assert_eq!((zone.usage().used, zone.usage().idle), (0, 0));
/// # Ok::<(), weir::zone::ZoneError>(())
/// ```
#[derive(Debug)]
pub struct Zone(NonNull<Home>);

// SAFETY: what is behind the pointer is used through locks and atomics.
unsafe impl Send for Zone {}
// SAFETY: as above.
unsafe impl Sync for Zone {}

impl Zone {
    /// A zone of `len` bytes of private memory. O(`len` / 2 MiB).
    pub fn anonymous(len: usize) -> Result<Self, ZoneError> {
        let memory = Memory { zero: true, huge: false, reported: true, shared: false };
        Self::make(len, Way::DontNeed, memory, |at| map_fixed(at, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1))
    }

    /// A zone of the first `len` bytes of a memfd (or a file on tmpfs), which is at least that long; the descriptor is
    /// not needed any more afterwards. Whoever maps the file sees the zone's memory; what is free is taken out of the
    /// file. Contents that the file has are kept until their pages are handed out.
    ///
    /// A file in huge pages (`MFD_HUGETLB`, hugetlbfs) takes them from the system's pool as [`Zone::hugetlb`] does. Only
    /// those of 2 MiB: larger ones are refused with `EINVAL`.
    pub fn from_memfd(fd: i32, len: usize) -> Result<Self, ZoneError> {
        if fd::size(fd).map_err(ZoneError::Refused)? < len as u64 {
            // A touch beyond its end would end the process.
            return Err(ZoneError::Length);
        }
        let huge = fd::huge_page(fd).map_err(ZoneError::Refused)?.is_some();
        let memory = Memory { zero: false, huge, reported: true, shared: true };
        // Not reserved: a punched hole would give the reservation up, and the next touch of it end the process.
        let flags = MAP_SHARED | if huge { MAP_NORESERVE } else { 0 };
        Self::make(len, Way::PunchHole, memory, |at| map_fixed(at, flags, fd))
    }

    /// A zone of `len` bytes in huge pages of 2 MiB from the system's pool. They are taken from the pool as they are
    /// handed out, and go back to it; where it is empty, [`Zone::alloc`] says `None`. Needs Linux 5.14 or later.
    pub fn hugetlb(len: usize) -> Result<Self, ZoneError> {
        let memory = Memory { zero: true, huge: true, reported: true, shared: false };
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE | HUGE_2MB;
        Self::make(len, Way::DontNeed, memory, |at| map_fixed(at, flags, -1))
    }

    /// A zone of `len` bytes that are locked in memory. They stay resident, free or not: [`Zone::is_reported`] says so.
    pub fn locked(len: usize) -> Result<Self, ZoneError> {
        let memory = Memory { zero: true, huge: false, reported: false, shared: false };
        Self::make(len, Way::Never, memory, |at| {
            map_fixed(at, MAP_PRIVATE | MAP_ANONYMOUS, -1)?;
            mman::mlock(at.addr as *mut u8, at.len)
        })
    }

    fn make(
        len: usize,
        way: Way,
        memory: Memory,
        map: impl FnOnce(Run) -> Result<(), Errno>,
    ) -> Result<Self, ZoneError> {
        if len == 0 || !len.is_multiple_of(BLOCK) || len > isize::MAX as usize / 2 {
            return Err(ZoneError::Length);
        }
        // Learns of the process, if nothing was allocated yet: a fork is to find the zone whole.
        HEAP.prepare();
        let home_len = (size_of::<Home>() + UserZone::descriptor_bytes(len)).next_multiple_of(PAGE);
        // Apart from what programs may write past the end of: its lists, and whom its memory goes to.
        let home = HEAP.platform().map_metadata(home_len, PAGE).ok_or(ZoneError::Refused(Errno::ENOMEM))?;
        let made = reserve(len).and_then(|at| map(at).map(|()| at).inspect_err(|_| unmap(at)));
        let at = made.map_err(|why| {
            unmap(Run { addr: home, len: home_len });
            ZoneError::Refused(why)
        })?;
        let home = home as *mut Home;
        let backing = Backing { way, huge: memory.huge, give_back: Releaser::new(), refused: AtomicBool::new(false) };
        // SAFETY: the mapping has room for both, aligned as it is to a page; nobody else knows it, and it stays until the
        // zone is dropped.
        unsafe {
            (&raw mut (*home).backing).write(backing);
            let below: NonNull<dyn Below> = NonNull::from(&(*home).backing);
            let blocks = home.add(1).cast::<Pageblock>();
            (&raw mut (*home).zone).write(UserZone::new(at, blocks, below, memory));
            (&raw mut (*home).memory).write(at);
            (&raw mut (*home).len).write(home_len);
            let home = NonNull::new_unchecked(home);
            HEAP.engine().add_zone(NonNull::from(&home.as_ref().zone));
            stats::add(&STATS.zone_bytes, len as u64);
            Ok(Self(home))
        }
    }

    fn home(&self) -> &Home {
        // SAFETY: written when the zone was made, unmapped when it is dropped.
        unsafe { self.0.as_ref() }
    }

    /// A run of pages of at least `bytes` (up to [`MAX_RUN`]), aligned to a page; `None` if there is none, or no memory
    /// behind it. O(1); makes system calls in a zone of huge pages.
    pub fn alloc(&self, bytes: usize) -> Option<Pages<'_>> {
        self.alloc_aligned(bytes, PAGE)
    }

    /// The same, aligned to `align`, a power of two up to [`MAX_RUN`] (other values: `None`).
    pub fn alloc_aligned(&self, bytes: usize, align: usize) -> Option<Pages<'_>> {
        let (at, zero) = self.take(bytes, align)?;
        Some(Pages { zone: self, at, len: bytes.next_multiple_of(PAGE), zero })
    }

    /// The same for a caller who gives it back by [`Zone::give`]; and whether it reads as zero.
    pub fn take(&self, bytes: usize, align: usize) -> Option<(NonNull<u8>, bool)> {
        if bytes == 0 || bytes > MAX_RUN || !align.is_power_of_two() || align > MAX_RUN {
            return None;
        }
        let (engine, home) = (HEAP.engine(), self.home());
        let pages = bytes.div_ceil(PAGE);
        let run = engine.zone_take(&home.zone, pages, order_of(align.div_ceil(PAGE)))?;
        let addr = engine.zone_addr(&home.zone, run);
        if home.backing.huge && !populate(Run { addr, len: pages * PAGE }) {
            // The pool is empty: a touch would end the process.
            let _ = engine.zone_give(&home.zone, addr, pages);
            return None;
        }
        NonNull::new(addr as *mut u8).map(|at| (at, run.zero))
    }

    /// Gives back what [`Zone::take`] gave, or whole pages of it; what is wrong with it, where that is seen.
    ///
    /// # Safety
    /// Nobody uses the pages any more.
    pub unsafe fn give(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Misuse> {
        HEAP.engine().zone_give(&self.home().zone, at.as_ptr() as usize, bytes.div_ceil(PAGE))
    }

    /// Whether what is free goes back below. A locked zone never does; one whose file refused it (a sealed memfd) does
    /// not either, but is tried again under pressure.
    pub fn is_reported(&self) -> bool {
        self.home().backing.way != Way::Never && !self.home().backing.refused.load(Relaxed)
    }

    /// What it holds, in pages. O(`len` / 2 MiB).
    pub fn usage(&self) -> ZoneUsage {
        HEAP.engine().zone_usage(&self.home().zone)
    }

    /// Its first byte and its length.
    pub fn range(&self) -> (NonNull<u8>, usize) {
        let memory = self.home().memory;
        (NonNull::new(memory.addr as *mut u8).unwrap_or(NonNull::dangling()), memory.len)
    }

    /// The number that its batches have in the trace, from 1.
    pub fn number(&self) -> u16 {
        self.home().zone.number()
    }

    /// Takes the `blocks` (of [`BLOCK`] bytes, from 0) out of use, if no page of them is in use: nothing is handed out of
    /// them or done with them any more until [`Zone::online`]. Waits for a batch that is in flight.
    ///
    /// ```
    /// let zone = weir::zone::Zone::anonymous(8 << 20)?;
    /// let pages = zone.alloc(4096).unwrap();
    /// assert_eq!(zone.offline(0..4).unwrap_err().pages, 1);
    /// drop(pages);
    /// zone.offline(0..4).unwrap();
    /// assert!(zone.alloc(4096).is_none());
    /// zone.online(0..4);
    /// assert!(zone.alloc(4096).is_some());
    /// # Ok::<(), weir::zone::ZoneError>(())
    /// ```
    pub fn offline(&self, blocks: Range<u32>) -> Result<(), InUse> {
        HEAP.engine().zone_offline(&self.home().zone, blocks)
    }

    /// The same without going back: pages that are in use stay so until they are freed, and are counted; nothing more is
    /// handed out of `blocks`. To be called again until it says 0.
    pub fn drain(&self, blocks: Range<u32>) -> usize {
        HEAP.engine().zone_close(&self.home().zone, blocks)
    }

    /// Puts blocks that were taken out of use back into it.
    pub fn online(&self, blocks: Range<u32>) {
        HEAP.engine().zone_open(&self.home().zone, blocks);
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        let home = self.home();
        HEAP.engine().remove_zone(&home.zone);
        STATS.zone_bytes.fetch_sub(home.memory.len as u64, Relaxed);
        let (memory, len) = (home.memory, home.len);
        unmap(memory);
        unmap(Run { addr: self.0.as_ptr() as usize, len });
    }
}

/// A run of pages of a [`Zone`], given back when dropped.
#[derive(Debug)]
pub struct Pages<'a> {
    zone: &'a Zone,
    at: NonNull<u8>,
    len: usize,
    zero: bool,
}

// SAFETY: the pages are this value's alone.
unsafe impl Send for Pages<'_> {}
// SAFETY: a shared reference reads only.
unsafe impl Sync for Pages<'_> {}

impl Pages<'_> {
    /// Whether all of it read as zero when it was handed out. If not, it holds anything.
    pub fn was_zero(&self) -> bool {
        self.zero
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped memory of that length, this value's alone; mapped bytes always have a value.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    /// Its bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        // SAFETY: this value's pages, which it gives up.
        let given = unsafe { self.zone.give(self.at, self.len) };
        debug_assert_eq!(given, Ok(()));
    }
}

/// Addresses for `len` bytes, aligned to the longest run, that nothing else is put at.
fn reserve(len: usize) -> Result<Run, Errno> {
    let total = len + MAX_RUN;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping at no fixed address.
    let at = unsafe { mman::mmap(core::ptr::null_mut(), total, mman::PROT_NONE, flags, -1, 0)? } as usize;
    let start = at.next_multiple_of(MAX_RUN);
    for run in [Run { addr: at, len: start - at }, Run { addr: start + len, len: at + MAX_RUN - start }] {
        if run.len > 0 {
            unmap(run);
        }
    }
    Ok(Run { addr: start, len })
}

fn map_fixed(at: Run, flags: u32, fd: i32) -> Result<(), Errno> {
    // SAFETY: replaces what `reserve` has just reserved.
    unsafe { mman::mmap(at.addr as *mut u8, at.len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) }.map(drop)
}

fn unmap(run: Run) {
    // SAFETY: a mapping of this file's, which nobody uses any more.
    let _ = unsafe { mman::munmap(run.addr as *mut u8, run.len) };
}

/// Has memory put behind `run` now; `false` if there is none, or the kernel (before 5.14) cannot say.
fn populate(run: Run) -> bool {
    let start = run.addr / PAGEBLOCK * PAGEBLOCK;
    let end = (run.addr + run.len).next_multiple_of(PAGEBLOCK);
    loop {
        // SAFETY: faults pages in, and changes none.
        match unsafe { mman::madvise(start as *mut u8, end - start, mman::MADV_POPULATE_WRITE) } {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            done => return done.is_ok(),
        }
    }
}
