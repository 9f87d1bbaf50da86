//! The memory of a zone: how it is mapped, and how it is released.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK, Pages};
use weir_core::pages::Hold;
use weir_core::pages::pageblock::Pageblock;
use weir_core::pages::user_zone::{MemoryKind, UserZone};
use weir_core::platform::{Contents, Host, Memory, Released};
use weir_linux::os::mman::{
    self, MADV_DONTFORK, MAP_ANONYMOUS, MAP_FIXED, MAP_HUGETLB, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED,
};
use weir_linux::os::mman::{PROT_NONE, PROT_READ, PROT_WRITE};
use weir_linux::os::syscall::Errno;
use weir_linux::platform::memory::release::Releaser;
use weir_linux::platform::statics::{STATS, TUNABLES};
use weir_linux::process::heap::HEAP;

use super::errors::{OsError, ZoneError};
use super::geometry::{BLOCK, MAX_RUN};

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

    /// Whether the kernel lets this process map such memory, as far as it says so before there is any.
    fn may_map(self, at: Run) -> Result<(), Errno> {
        match self {
            // Locked pages count against `ulimit -l`, also those that nobody may touch and that so have no memory.
            Self::Locked => map_fixed(at, PROT_NONE, PRIVATE | MAP_LOCKED, -1),
            _ => Ok(()),
        }
    }

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
                unsafe { mman::madvise(at.addr as *mut u8, at.len, MADV_DONTFORK) }
            }
            Self::Locked => {
                map_fixed(at, USED, PRIVATE, -1)?;
                mman::mlock(at.addr as *mut u8, at.len)
            }
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

/// The memory below a zone, as it is released.
struct Backing {
    release: Release,
    /// In huge pages of the system's pool, which go whole.
    huge: bool,
    releaser: Releaser,
    refused: AtomicBool,
}

impl Host for Backing {
    fn release(&self, runs: &[Run], calm: bool) -> Released {
        match self.release {
            Release::Never => Released { runs: 0, contents: Contents::Zero, error: Errno::EPERM.0 as u32 },
            Release::DontNeed => {
                let lazily = calm && !self.huge && TUNABLES.report_lazily.get() != 0;
                self.releaser.release(runs, lazily)
            }
            Release::PunchHole => {
                let (done, refused) = self.releaser.punch_holes(runs);
                self.refused.store(refused.is_some(), Relaxed);
                Released { runs: done, contents: Contents::Zero, error: refused.map_or(0, |why| why.0 as u32) }
            }
        }
    }

    fn release_unit(&self) -> usize {
        if self.huge { PAGEBLOCK } else { PAGE }
    }
}

/// The state of a zone. It lies in a mapping of its own, with the descriptors of its blocks behind
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

impl Home {
    pub(super) fn new(size: usize, kind: Kind) -> Result<Self, ZoneError> {
        if size == 0 || !size.is_multiple_of(BLOCK) || size > isize::MAX as usize / 2 {
            return Err(ZoneError::Size { size });
        }
        let shape = kind.memory();
        // Sets the heap up for this process, if nothing was allocated yet: a fork is to find the zone whole.
        let len = (size_of::<State>() + UserZone::descriptor_bytes(size)).next_multiple_of(PAGE);
        // Apart from what programs may write past the end of.
        HEAP.prepare();
        let state =
            HEAP.platform().map_metadata(len, PAGE).map_err(|refused| OsError::new(Errno(refused.error as i32)))?;
        let (memory, _room) = map(size, kind).map_err(|why| {
            unmap(Run { addr: state, len });
            OsError::new(why)
        })?;
        let state = state as *mut State;
        let backing = Backing {
            release: kind.release(),
            huge: shape.huge,
            releaser: Releaser::new(),
            refused: AtomicBool::new(false),
        };
        // SAFETY: the mapping has room for the state and the descriptors, aligned to a page. It is this function's
        // alone until the zone is added to the heap, and stays until the zone is dropped.
        unsafe {
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

    pub(super) fn is_huge(&self) -> bool {
        self.state().backing.huge
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

/// Maps the memory of a zone. What is resident from the start has room below the hard limit for as long as the second value lives:
/// it is resident before the heap can count it.
fn map(size: usize, kind: Kind) -> Result<(Run, Option<Hold<'static>>), Errno> {
    let at = reserve(size)?;
    let mapped = || {
        // Asked first: caches may have to make room, and are to do so for no zone that cannot be.
        kind.may_map(at)?;
        let is_resident = !kind.memory().reported;
        let room = if is_resident { Some(HEAP.room_for_zone(size).map_err(|_| Errno::ENOMEM)?) } else { None };
        kind.map(at)?;
        Ok((at, room))
    };
    mapped().inspect_err(|_| unmap(at))
}

/// Addresses for `len` bytes, aligned to the longest run, that nothing else is put at.
fn reserve(len: usize) -> Result<Run, Errno> {
    let total = len + MAX_RUN;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping at no fixed address.
    let at = unsafe { mman::mmap(core::ptr::null_mut(), total, PROT_NONE, flags, -1, 0)? } as usize;
    let start = at.next_multiple_of(MAX_RUN);
    for run in [Run { addr: at, len: start - at }, Run { addr: start + len, len: at + MAX_RUN - start }] {
        if run.len > 0 {
            unmap(run);
        }
    }
    Ok(Run { addr: start, len })
}

fn map_fixed(at: Run, protection: u32, flags: u32, fd: i32) -> Result<(), Errno> {
    // SAFETY: replaces what `reserve` has just reserved.
    unsafe { mman::mmap(at.addr as *mut u8, at.len, protection, flags | MAP_FIXED, fd, 0) }.map(drop)
}

fn unmap(run: Run) {
    // SAFETY: a mapping of this file's, which nothing refers to any more.
    let _ = unsafe { mman::munmap(run.addr as *mut u8, run.len) };
}
