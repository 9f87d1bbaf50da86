//! Zones.

use core::ops::Range;
use core::ptr::NonNull;
use weir_core::base::run::Run;
use weir_core::base::units::{self, BlockNo, Order, PAGE};
use weir_core::base::zone_class::ZoneClass;
use weir_core::pages::Short;
use weir_core::pages::zone::PageRun;
use weir_linux::os::fd;
use weir_linux::process::heap::HEAP;

use super::backing::{Home, Kind};
use super::errors::{OfflineError, OsError, ZoneError};
use super::geometry::{BLOCK, MAX_RUN};
use super::run::Pages;
use crate::fd::Fd;

/// A zone's memory by its use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneUsage {
    /// In all.
    pub bytes: usize,
    /// Handed out.
    pub used_bytes: usize,
    /// Free, and resident as far as Weir can tell.
    pub idle_bytes: usize,
    /// Taken offline, or on the way there.
    pub offline_bytes: usize,
}

/// A zone. Dropping it releases all of its memory; runs of it cannot outlive it. See the [module](crate::zone) for an
/// example.
#[derive(Debug)]
pub struct Zone(Home);

impl Zone {
    /// A zone of `size` bytes of private memory. O(`size` / 2 MiB).
    ///
    /// # Errors
    /// [`ZoneError::Size`], or [`ZoneError::Os`] where the kernel refuses the address space.
    pub fn anonymous(size: usize) -> Result<Self, ZoneError> {
        Home::new(size, Kind::Anonymous).map(Self)
    }

    /// A zone of the first `size` bytes of a memfd (or a file on tmpfs), which is at least that long. The descriptor is
    /// not needed afterwards. Every process that maps the file sees the zone's memory; what is free is taken out of the
    /// file. Contents that the file has are kept until their pages are handed out.
    ///
    /// What is handed out has its place in the file. Where a file system with a limit of its size is full, [`Zone::alloc`] returns
    /// `None`. Before Linux 5.14 the first touch ends the process there (`SIGBUS`).
    ///
    /// A file in huge pages (`MFD_HUGETLB`, hugetlbfs) takes them from the system's pool as [`Zone::hugetlb`] does.
    /// Only those of 2 MiB: larger ones are refused with `EINVAL`.
    ///
    /// # Safety
    /// For as long as the zone lives:
    ///
    /// - The file does not become shorter: a touch of what is missing then ends the process (`SIGBUS`).
    /// - Others (processes, mappings or zones) write only to runs of the file's first `size` bytes that this zone has
    ///   handed out to them. No slice of such a run is borrowed meanwhile: [`Pages::filled`],
    ///   [`Pages::filled_mut`] and the values of a cache whose entries lie in the zone. Bytes that others write are read
    ///   and written by [`Pages::as_ptr`], with volatile or atomic accesses.
    ///
    /// Of a safe function two zones could be made of one file, and two `&mut [u8]` of one page:
    ///
    /// ```compile_fail,E0133
    /// # fn zone(file: weir::Fd<'_>) {
    /// let zone = weir::zone::Zone::from_memfd(file, 8 << 20);
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ZoneError::Size`], [`ZoneError::FileTooShort`], or [`ZoneError::Os`] where the descriptor cannot be mapped.
    ///
    /// ```
    /// use std::os::fd::AsRawFd;
    /// # fn memfd() -> std::fs::File {
    /// #     unsafe extern "C" { fn memfd_create(name: *const i8, flags: u32) -> i32; }
    /// #     use std::os::fd::FromRawFd;
    /// #     // SAFETY: the name is a C string, and the descriptor is new.
    /// #     unsafe { std::fs::File::from_raw_fd(memfd_create(c"frames".as_ptr(), 1)) }
    /// # }
    /// let file = memfd(); // shared with another process
    /// file.set_len(8 << 20)?;
    /// // SAFETY: the file is open; its length is sealed, and the other process writes only where it is told to.
    /// let zone = unsafe { weir::zone::Zone::from_memfd(weir::Fd::borrow_raw(file.as_raw_fd()), 8 << 20)? };
    /// let frame = zone.alloc(1 << 20).unwrap();
    /// // The offset in the file, to tell the other process.
    /// let offset = frame.as_ptr() as usize - zone.as_ptr().as_ptr() as usize;
    /// assert!(offset < 8 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn from_memfd(fd: Fd<'_>, size: usize) -> Result<Self, ZoneError> {
        let fd = fd.as_raw();
        let file = fd::fstat(fd).map_err(OsError::new)?.size;
        if file < size as u64 {
            // A touch beyond its end would end the process.
            return Err(ZoneError::FileTooShort { size, file });
        }
        let huge = fd::huge_page(fd).map_err(OsError::new)?.is_some();
        Home::new(size, Kind::File { fd, huge }).map(Self)
    }

    /// A zone of `size` bytes in huge pages of 2 MiB from the system's pool. They are taken from the pool as they are
    /// handed out, and returned to it when they are released, which needs Linux 5.18. Where the pool (`vm.nr_hugepages`) is
    /// empty, [`Zone::alloc`] returns `None`; the zone can be made all the same. Needs Linux 5.14 or later.
    ///
    /// A forked child does not have the memory: a touch of it there is a fault (`SIGSEGV`).
    ///
    /// # Errors
    /// [`ZoneError::Size`], or [`ZoneError::Os`] where the kernel refuses the address space, or has no huge pages of 2 MiB.
    pub fn hugetlb(size: usize) -> Result<Self, ZoneError> {
        Home::new(size, Kind::HugePages).map(Self)
    }

    /// A zone of `size` bytes that are locked in memory. They stay resident, free or not: [`Zone::is_reported`] is
    /// false. A forked child has a copy that is not locked (`mlock(2)`).
    ///
    /// # Errors
    /// [`ZoneError::Size`], or [`ZoneError::Os`]: `EAGAIN` where more would be locked than `ulimit -l` allows, and `EPERM`
    /// where it allows nothing; `ENOMEM` where there is no memory, or the setting `hard_limit` has no room for all of it.
    ///
    /// ```
    /// match weir::zone::Zone::locked(2 << 20) {
    ///     Ok(zone) => assert!(!zone.is_reported()),
    ///     Err(error) => println!("{error}"), // "the kernel refused the zone's memory: ENOMEM (12)"
    /// }
    /// ```
    pub fn locked(size: usize) -> Result<Self, ZoneError> {
        Home::new(size, Kind::Locked).map(Self)
    }

    /// A run of pages of at least `bytes` (1 to [`MAX_RUN`]), aligned to a page; `None` for other sizes, where no run
    /// is free, and where there is no memory behind it. O(1). Makes a system call in a zone of huge pages, and in one of a file for
    /// pages that were never handed out, or released since. Near a limit it first evicts from caches, as an allocation of the heap's
    /// does, and may wait for some seconds: hold no lock that a callback of theirs takes.
    pub fn alloc(&self, bytes: usize) -> Option<Pages<'_>> {
        self.alloc_aligned(bytes, PAGE)
    }

    /// Allocates as [`Zone::alloc`] does, for callers that can use other memory as well. The zone is the first of a zone
    /// list, and the heap the next.
    ///
    /// `None` where less than the zone's low mark (some 5 to 10 % of it) would be left. What is below the mark is for
    /// callers that can use no other memory. While memory is short on the heap too, the limit is the zone's min, and caches
    /// in both are made smaller.
    ///
    /// ```
    /// let zone = weir::zone::Zone::anonymous(4 << 20)?;
    /// let first = core::iter::from_fn(|| zone.alloc_first(64 << 10)).collect::<Vec<_>>();
    /// assert!(first.len() < 64 && zone.alloc(64 << 10).is_some());
    /// # Ok::<(), weir::zone::ZoneError>(())
    /// ```
    pub fn alloc_first(&self, bytes: usize) -> Option<Pages<'_>> {
        self.alloc_first_aligned(bytes, PAGE)
    }

    pub(crate) fn alloc_first_aligned(&self, bytes: usize, align: usize) -> Option<Pages<'_>> {
        self.alloc_by(bytes, align, |pages, align| HEAP.zone_take_first(self.0.zone(), pages, align))
    }

    /// The class that it counts as in its node.
    pub(crate) fn class(&self) -> ZoneClass {
        self.0.zone().class()
    }

    /// The number that no other zone of the process has.
    pub(crate) fn number(&self) -> u64 {
        self.0.zone().number()
    }

    /// Whether the byte at an address is the zone's.
    pub(crate) fn contains(&self, addr: usize) -> bool {
        let memory = self.0.memory();
        addr.wrapping_sub(memory.addr) < memory.len && !self.0.is_gone()
    }

    /// Whether the zone is that of the process which this one was forked from, and not this one's. Then nothing is handed out or
    /// released here. It is so of zones with a memfd, and of those in huge pages.
    pub fn is_foreign(&self) -> bool {
        self.0.zone().is_foreign()
    }

    /// Whether an address lies in a zone that is the parent's, whatever is there in this process.
    pub(crate) fn is_foreign_at(&self, addr: usize) -> bool {
        let memory = self.0.memory();
        self.is_foreign() && addr.wrapping_sub(memory.addr) < memory.len
    }

    /// Whether [`Zone::alloc_first`] has room for so many bytes more, and no pressure keeps caches from growing.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        HEAP.zone_has_room(self.0.zone(), bytes)
    }

    /// [`Zone::alloc`], aligned to `align`, a power of two up to [`MAX_RUN`] (other values: `None`).
    ///
    /// ```
    /// let zone = weir::zone::Zone::anonymous(8 << 20)?;
    /// let pages = zone.alloc_aligned(100, 2 << 20).unwrap();
    /// assert_eq!((pages.capacity(), pages.as_ptr() as usize % (2 << 20)), (4096, 0));
    /// # Ok::<(), weir::zone::ZoneError>(())
    /// ```
    pub fn alloc_aligned(&self, bytes: usize, align: usize) -> Option<Pages<'_>> {
        self.alloc_by(bytes, align, |pages, align| HEAP.zone_take(self.0.zone(), pages, align))
    }

    fn alloc_by(
        &self,
        bytes: usize,
        align: usize,
        take: impl FnOnce(units::Pages, Order) -> Result<PageRun, Short>,
    ) -> Option<Pages<'_>> {
        if bytes == 0 || bytes > MAX_RUN || !align.is_power_of_two() || align > MAX_RUN {
            return None;
        }
        let zone = self.0.zone();
        let pages = units::Pages::to_hold(bytes);
        let run = take(pages, Order::of_align(align)).ok()?;
        let (addr, zero) = (HEAP.pages().zone_addr(zone, run), run.zero);
        let len = pages.length();
        if !self.0.is_there(Run { addr, len }, !run.fresh.is_zero()) {
            return None;
        }
        let at = NonNull::new(addr as *mut u8)?;
        // SAFETY: the engine has just handed it out, at that length, and says truly whether it is zero.
        Some(unsafe { Pages::new(&self.0, NonNull::slice_from_raw_parts(at, len), zero) })
    }

    /// Turns a run back into a value that [`Pages::into_raw`] gave up. Nothing of it counts as filled;
    /// [`Pages::advance`] says what is.
    ///
    /// # Safety
    /// The run is one of this zone's, whole, from `into_raw`, and is turned back once.
    pub unsafe fn pages_from_raw(&self, run: NonNull<[u8]>) -> Pages<'_> {
        // SAFETY: in use, and this value's from now on, as the caller promises.
        unsafe { Pages::new(&self.0, run, false) }
    }

    /// Whether free memory of the zone is released. False for a locked zone, always; false where the kernel refused it the last
    /// time (a sealed memfd, pages that the program locked, huge pages before Linux 5.18), which is tried again under pressure.
    pub fn is_reported(&self) -> bool {
        self.0.is_reported()
    }

    /// The zone's memory by its use now. O(size / 2 MiB).
    pub fn usage(&self) -> ZoneUsage {
        let pages = HEAP.zone_usage(self.0.zone());
        ZoneUsage {
            bytes: pages.pages.bytes().0,
            used_bytes: pages.used.bytes().0,
            idle_bytes: pages.idle.bytes().0,
            offline_bytes: pages.closed.bytes().0,
        }
    }

    /// The zone's first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        NonNull::new(self.0.memory().addr as *mut u8).unwrap_or(NonNull::dangling())
    }

    /// The zone's size, bytes.
    pub fn size(&self) -> usize {
        self.0.memory().len
    }

    /// Takes the bytes of `range` out of use, if none of them is in use. The range counts from the zone's first byte, and
    /// both ends are multiples of [`BLOCK`]. Nothing is handed out or released there until [`Zone::online`]. Waits for a
    /// release in flight.
    ///
    /// # Errors
    /// [`OfflineError::Range`]; [`OfflineError::InUse`]: then nothing has changed.
    ///
    /// ```
    /// use weir::zone::{OfflineError, Zone};
    ///
    /// let zone = Zone::anonymous(8 << 20)?;
    /// let pages = zone.alloc(4096).unwrap();
    /// assert_eq!(zone.offline(0..8 << 20), Err(OfflineError::InUse { bytes: 4096 }));
    /// drop(pages);
    /// zone.offline(0..8 << 20).unwrap();
    /// assert!(zone.alloc(4096).is_none());
    /// zone.online(0..8 << 20).unwrap();
    /// assert!(zone.alloc(4096).is_some());
    /// # Ok::<(), weir::zone::ZoneError>(())
    /// ```
    pub fn offline(&self, range: Range<usize>) -> Result<(), OfflineError> {
        let blocks = self.blocks(&range)?;
        let in_use = |why: weir_core::pages::user_zone::InUse| OfflineError::InUse { bytes: why.pages.bytes().0 };
        HEAP.zone_offline(self.0.zone(), blocks).map_err(in_use)
    }

    /// [`Zone::offline`] in steps: from now on nothing is handed out in `range`; returns how many bytes there are still
    /// in use. At 0 the range is offline; until then call it again as they are freed.
    ///
    /// # Errors
    /// [`OfflineError::Range`].
    ///
    /// ```
    /// let zone = weir::zone::Zone::anonymous(4 << 20)?;
    /// let pages = zone.alloc(4096).unwrap();
    /// assert_eq!(zone.drain(0..4 << 20), Ok(4096));
    /// drop(pages);
    /// assert_eq!(zone.drain(0..4 << 20), Ok(0));
    /// # Ok::<(), weir::zone::ZoneError>(())
    /// ```
    pub fn drain(&self, range: Range<usize>) -> Result<usize, OfflineError> {
        let blocks = self.blocks(&range)?;
        Ok(HEAP.zone_close(self.0.zone(), blocks).bytes().0)
    }

    /// Puts a range back into use that was taken offline.
    ///
    /// # Errors
    /// [`OfflineError::Range`].
    pub fn online(&self, range: Range<usize>) -> Result<(), OfflineError> {
        let blocks = self.blocks(&range)?;
        HEAP.zone_open(self.0.zone(), blocks);
        Ok(())
    }

    /// The numbers of the blocks of `range`, if it is whole blocks of the zone, and at least one.
    fn blocks(&self, range: &Range<usize>) -> Result<Range<BlockNo>, OfflineError> {
        let is_valid = range.start.is_multiple_of(BLOCK)
            && range.end.is_multiple_of(BLOCK)
            && range.start < range.end
            && range.end <= self.size();
        if is_valid {
            Ok(BlockNo((range.start / BLOCK) as u32)..BlockNo((range.end / BLOCK) as u32))
        } else {
            Err(OfflineError::Range { start: range.start, end: range.end, size: self.size() })
        }
    }
}
