//! The memory of a zone: how it is mapped, and how it is released.

use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weir_core::base::run::Run;
use weir_core::base::units::{Order, PAGE, PAGEBLOCK, Pages};
use weir_core::pages::Hold;
use weir_core::pages::pageblock::Pageblock;
use weir_core::pages::user_zone::{MemoryKind, UserZone};
use weir_core::platform::{Contents, Host, Memory, Released};
use weir_linux::messages;
use weir_linux::os::mman::{
    self, MADV_DONTFORK, MADV_POPULATE_WRITE, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_HUGETLB, MAP_NORESERVE,
    MAP_PRIVATE, MAP_SHARED,
};
use weir_linux::os::mman::{PROT_NONE, PROT_READ, PROT_WRITE};
use weir_linux::os::page;
use weir_linux::os::syscall::Errno;
use weir_linux::platform::memory::release::Releaser;
use weir_linux::platform::statics::{STATS, TUNABLES};
use weir_linux::process::heap::HEAP;

use super::errors::{OsError, ZoneError};
use super::geometry::{BLOCK, MAX_RUN, MAX_SIZE};
use super::hollow::Hollow;

/// log2 of a huge page of 2 MiB, where `mmap` wants it.
const HUGE_2MB: u32 = 21 << 26;
/// `mmap`'s: the pages count as locked from the start.
const MAP_LOCKED: u32 = 0x2000;

const PRIVATE: u32 = MAP_PRIVATE | MAP_ANONYMOUS;

/// The kind of a zone's memory.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Anonymous,
    File { fd: i32, huge: bool },
    HugePages,
    Locked,
}

impl Kind {
    fn memory(self) -> MemoryKind {
        let (zero, huge, reported, shared) = match self {
            Self::Anonymous => (true, false, true, false),
            Self::File { huge, .. } => (false, huge, true, true),
            // A forked child does not have it at all, and so may not use the zone either.
            Self::HugePages => (true, true, true, true),
            Self::Locked => (true, false, false, false),
        };
        MemoryKind { zero, huge, reported, shared }
    }

    fn release(self) -> Release {
        match self {
            Self::Anonymous | Self::HugePages => Release::DontNeed,
            Self::File { .. } => Release::PunchHole,
            Self::Locked => Release::Never,
        }
    }

    /// Tells once why free memory stays.
    fn says_that_it_stays(self) -> fn(Errno) {
        match self {
            Self::HugePages => messages::pool_stays_taken,
            _ => messages::memory_stays_resident,
        }
    }

    /// Whether the kernel lets this process map such memory, as far as it says so before there is any.
    fn may_map(self, len: usize) -> Result<(), Errno> {
        match self {
            // Locked pages count against `ulimit -l`, also those that nobody may touch and that so have no memory.
            Self::Locked => map_none(len, MAP_LOCKED).map(unmap),
            _ => Ok(()),
        }
    }

    /// Maps it there, or leaves what is there as it is.
    fn map(self, at: Run) -> Result<(), Errno> {
        const USED: u32 = PROT_READ | PROT_WRITE;
        match self {
            Self::Anonymous => map_fixed(at, USED, PRIVATE | MAP_NORESERVE, -1),
            // Not reserved: a punched hole would give the reservation up, and the next touch of it end the process.
            Self::File { fd, huge } => map_fixed(at, USED, MAP_SHARED | if huge { MAP_NORESERVE } else { 0 }, fd),
            Self::HugePages => {
                map_fixed(at, USED, PRIVATE | MAP_HUGETLB | MAP_NORESERVE | HUGE_2MB, -1)?;
                // Else a write of the parent's to what a child has too takes a second huge page, and ends the parent where the
                // pool has none.
                // SAFETY: mapped just now; the contents stay.
                unsafe { mman::madvise(at.addr as *mut u8, at.len, MADV_DONTFORK) }.inspect_err(|_| unmap(at))
            }
            Self::Locked => map_fixed(at, USED, PRIVATE, -1),
        }
    }

    /// Has memory that is resident from the start become so.
    fn fill(self, at: Run) -> Result<(), Errno> {
        match self {
            Self::Locked => mman::mlock(at.addr as *mut u8, at.len),
            _ => Ok(()),
        }
    }
}

/// How free memory is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    DontNeed,
    PunchHole,
    Never,
}

/// A run that has no memory. Bit i: the i-th pageblock that has a part of it got none, and is as it was before.
struct Bare(u32);

/// The memory below a zone, as it is released.
struct Backing {
    release: Release,
    /// In huge pages of the system's pool, which go whole.
    huge: bool,
    releaser: Releaser,
    refused: AtomicBool,
    /// Of a file of small pages.
    hollow: Hollow,
}

impl Backing {
    /// Has memory put behind a run that was just taken, where a touch could end the process else. Where there is none, the run is
    /// to be given back. `is_fresh`: the engine says that pages of it have none.
    #[inline]
    fn populate(&self, run: Run, is_fresh: bool) -> Result<(), Bare> {
        match self.release {
            _ if self.huge => populate_huge(run),
            // Others may have taken the file system's space since what is free here was taken out of the file.
            Release::PunchHole if (is_fresh || self.hollow.has(run)) && !self.populate_file(run) => Err(Bare(0)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn populate_file(&self, run: Run) -> bool {
        if let Err(Errno::EFAULT | Errno::ENOMEM) = populate(run) {
            // The part that got memory gives it back: others may do with it.
            self.releaser.punch_holes(&[run]);
            self.hollow.add(run);
            return false;
        }
        // Also where the kernel cannot say.
        self.hollow.remove(run);
        true
    }
}

impl Host for Backing {
    fn release(&self, runs: &[Run], calm: bool) -> Released {
        match self.release {
            Release::Never => Released { runs: 0, contents: Contents::Zero, error: Errno::EPERM.0 as u32 },
            Release::DontNeed => {
                let lazily = calm && !self.huge && TUNABLES.report_lazily.get() != 0;
                let released = self.releaser.release(runs, lazily);
                self.refused.store(released.error != 0, Relaxed);
                released
            }
            Release::PunchHole => {
                let (done, refused) = self.releaser.punch_holes(runs);
                runs[..done].iter().for_each(|&run| self.hollow.remove(run));
                self.refused.store(refused.is_some(), Relaxed);
                Released { runs: done, contents: Contents::Zero, error: refused.map_or(0, |why| why.0 as u32) }
            }
        }
    }

    fn release_unit(&self) -> usize {
        if self.huge { PAGEBLOCK } else { page::bytes() }
    }
}

/// The state of a zone. It lies in a mapping of its own, with the descriptors of its blocks and the bits of hollow pages behind
/// it. The engine holds pointers to it, so it must not move.
#[repr(C, align(64))]
struct State {
    zone: UserZone,
    backing: Backing,
    memory: Run,
    /// Bytes of the mapping that this lies in.
    len: usize,
}

/// Owns a zone's state and memory.
pub(super) struct Home(NonNull<State>);

// SAFETY: the state is used through locks and atomics.
unsafe impl Send for Home {}
// SAFETY: all that a shared reference reaches is atomic, behind a lock, or never changes.
unsafe impl Sync for Home {}

// None of the program's code runs inside a zone's calls, so that no panic leaves one half-way.
impl UnwindSafe for Home {}
impl RefUnwindSafe for Home {}

impl Home {
    pub(super) fn new(size: usize, kind: Kind) -> Result<Self, ZoneError> {
        if size == 0 || !size.is_multiple_of(BLOCK) || size > MAX_SIZE {
            return Err(ZoneError::Size { size });
        }
        let shape = kind.memory();
        // Sets the heap up for this process, if nothing was allocated yet: a fork is to find the zone whole.
        let words = if matches!(kind, Kind::File { huge: false, .. }) { Hollow::words(size) } else { 0 };
        let bits_at = size_of::<State>() + UserZone::descriptor_bytes(size);
        let len = (bits_at + words * size_of::<AtomicU64>()).next_multiple_of(PAGE);
        // Apart from what programs may write past the end of.
        HEAP.prepare();
        let state = HEAP
            .platform()
            .map_metadata(len, Order::PAGE)
            .map_err(|refused| OsError::new(Errno(refused.error as i32)))?;
        let (memory, _room) = map(size, kind).map_err(|why| {
            unmap(Run { addr: state, len });
            OsError::new(why)
        })?;
        let state = state as *mut State;
        // SAFETY: the mapping has room for the state, the descriptors and then the bits, aligned to a page. It is zero, and this
        // function's alone until the zone is added to the heap. It stays until the zone is dropped.
        unsafe {
            let bits = NonNull::new_unchecked(state.byte_add(bits_at).cast::<AtomicU64>());
            let backing = Backing {
                release: kind.release(),
                huge: shape.huge,
                releaser: Releaser::new(kind.says_that_it_stays()),
                refused: AtomicBool::new(false),
                hollow: Hollow::new(memory.addr, NonNull::slice_from_raw_parts(bits, words)),
            };
            (&raw mut (*state).backing).write(backing);
            let below: NonNull<dyn Host> = NonNull::new_unchecked(&raw mut (*state).backing);
            let blocks = state.add(1).cast::<Pageblock>();
            (&raw mut (*state).zone).write(UserZone::new(memory, blocks, below, shape));
            (&raw mut (*state).memory).write(memory);
            (&raw mut (*state).len).write(len);
            HEAP.add_zone(NonNull::new_unchecked(&raw mut (*state).zone));
            HEAP.pages().gauges.zone_bytes.add(size as u64, &STATS.zone_bytes);
            Ok(Self(NonNull::new_unchecked(state)))
        }
    }

    fn state(&self) -> &State {
        // SAFETY: written when the zone was made, unmapped when it is dropped.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn zone(&self) -> &UserZone {
        &self.state().zone
    }

    /// Takes a run back, which is not used any more.
    pub(super) fn give(&self, run: NonNull<[u8]>) {
        let given = HEAP.zone_give(self.zone(), run.addr().get(), Pages::in_bytes(run.len()));
        debug_assert_eq!(given, Ok(()));
    }

    pub(super) fn memory(&self) -> Run {
        self.state().memory
    }

    /// Whether a run that was just taken can be touched; where not, it was given back. `is_fresh`: the engine says that pages of it
    /// have no memory.
    #[inline]
    pub(super) fn is_there(&self, run: Run, is_fresh: bool) -> bool {
        let populated = self.state().backing.populate(run, is_fresh);
        if let Err(Bare(blocks)) = populated {
            let _ = HEAP.zone_give_bare(self.zone(), run.addr, Pages::in_bytes(run.len), blocks);
        }
        populated.is_ok()
    }

    /// Whether the memory is not this process's, but its parent's, in the place of which other memory may be here.
    pub(super) fn is_gone(&self) -> bool {
        let Backing { huge, release, .. } = self.state().backing;
        huge && release == Release::DontNeed && self.zone().is_foreign()
    }

    pub(super) fn is_reported(&self) -> bool {
        let backing = &self.state().backing;
        backing.release != Release::Never && !backing.refused.load(Relaxed)
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { addr, len } = self.memory();
        f.debug_struct("Home").field("addr", &addr).field("len", &len).finish_non_exhaustive()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let (memory, len, is_gone) = (self.memory(), self.state().len, self.is_gone());
        HEAP.remove_zone(self.zone());
        HEAP.pages().gauges.zone_bytes.sub(memory.len as u64, &STATS.zone_bytes);
        if !is_gone {
            unmap(memory);
        }
        unmap(Run { addr: self.0.addr().get(), len });
    }
}

/// Maps the memory of a zone. What is resident from the start has room by then, and below the hard limit for as long as the second
/// value lives: it is resident before the heap can count it.
fn map(size: usize, kind: Kind) -> Result<(Run, Option<Hold<'static>>), Errno> {
    loop {
        kind.may_map(size)?;
        let at = free_place(size)?;
        match kind.map(at) {
            Err(Errno::EEXIST) => continue,
            mapped => mapped?,
        }
        // Caches may have to make room. They are to do so for no zone that cannot be: what the system refuses, it has by now.
        let room = || -> Result<_, Errno> {
            let is_resident = !kind.memory().reported;
            let room = if is_resident { Some(HEAP.room_for_zone(size).map_err(|_| Errno::ENOMEM)?) } else { None };
            kind.fill(at)?;
            Ok(room)
        };
        return room().inspect_err(|_| unmap(at)).map(|room| (at, room));
    }
}

/// Addresses for `len` bytes, aligned to the longest run, at which nothing is now.
///
/// They are not kept reserved: a mapping that replaces one and is refused may leave a hole, which another thread may get. Nothing
/// could then say whether the addresses are to be unmapped.
fn free_place(len: usize) -> Result<Run, Errno> {
    let around = map_none(len + MAX_RUN, 0)?;
    unmap(around);
    Ok(Run { addr: around.addr.next_multiple_of(MAX_RUN), len })
}

/// Addresses that nothing else has, and that nobody may touch.
fn map_none(len: usize, flags: u32) -> Result<Run, Errno> {
    // SAFETY: a new mapping at no fixed address.
    let at = unsafe { mman::mmap(core::ptr::null_mut(), len, PROT_NONE, PRIVATE | MAP_NORESERVE | flags, -1, 0)? };
    Ok(Run { addr: at as usize, len })
}

/// `EEXIST`: something is there.
fn map_fixed(at: Run, protection: u32, flags: u32, fd: i32) -> Result<(), Errno> {
    // SAFETY: NOREPLACE: what exists is left alone.
    let got =
        unsafe { mman::mmap(at.addr as *mut u8, at.len, protection, flags | MAP_FIXED_NOREPLACE, fd, 0)? } as usize;
    if got != at.addr {
        // Kernels before 4.17 take the address as a hint only.
        unmap(Run { addr: got, ..at });
        return Err(Errno::EEXIST);
    }
    Ok(())
}

/// Has memory put behind `run` now: behind all of the kernel's pages that it has a part of.
fn populate(run: Run) -> Result<(), Errno> {
    let page = page::bytes();
    let start = run.addr & !(page - 1);
    let run = Run { addr: start, len: (run.addr + run.len).next_multiple_of(page) - start };
    loop {
        // SAFETY: faults pages in, and changes none.
        match unsafe { mman::madvise(run.addr as *mut u8, run.len, MADV_POPULATE_WRITE) } {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            done => return done,
        }
    }
}

/// Takes huge pages of the system's pool for each pageblock that has a part of `run`. The pool may be used up. A kernel that cannot
/// say (before 5.14) is no help either.
fn populate_huge(run: Run) -> Result<(), Bare> {
    let mut bare = 0;
    for (i, addr) in (run.addr / PAGEBLOCK * PAGEBLOCK..run.addr + run.len).step_by(PAGEBLOCK).enumerate() {
        bare |= u32::from(populate(Run { addr, len: PAGEBLOCK }).is_err()) << i;
    }
    if bare == 0 { Ok(()) } else { Err(Bare(bare)) }
}

fn unmap(run: Run) {
    // SAFETY: a mapping of this file's, which nothing refers to any more.
    let _ = unsafe { mman::munmap(run.addr as *mut u8, run.len) };
}
