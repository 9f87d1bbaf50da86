//! A zone of the program's own: memory that it mapped as it likes. The zone hands it out in runs of pages, and reports it below
//! by what backs it. The areas, the isolation and the reporter are the heap's; only its memory is the program's.
//!
//! It never grows. An allocation that finds nothing while a batch is in flight waits for that batch, so that isolation
//! makes none fail here either.
//!
//! # Hot-unplug
//!
//! A range of pageblocks is *closed*: its free pages are on no list any more, and what is freed there joins them. Once none is in
//! use, the range is out of use and may be unmapped. [`crate::pages::HeapPages::zone_offline`] closes it only if none is.
//!
//! # How it is found
//!
//! A heap holds its zones in a list. Whoever visits one without holding the list's lock has *pinned* it; removing waits
//! until none has.

mod calls;

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::base::run::Run;
use crate::base::units::{BlockNo, MAX_RUN, Order, PAGEBLOCK, Pages};
use crate::base::zone_class::ZoneClass;
use crate::pages::pageblock::{Pageblock, State};
use crate::pages::request::Short;
use crate::pages::window::Window;
use crate::pages::zone::FreeAreas;
use crate::pages::zone::locked::Zone;
use crate::platform::lock::{Lock, RankTurn};
use crate::platform::rank;
use crate::platform::{Host, Platform};

/// What a zone lacks for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// It has no such run free, or keeps what is free.
    Pages,
    /// A run is free, and the hard limit keeps it from becoming resident.
    Room,
}

impl From<Lack> for Short {
    fn from(_: Lack) -> Self {
        Self
    }
}

/// How the memory of a zone behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKind {
    /// The memory reads as zero where it was not used yet.
    pub zero: bool,
    /// A whole pageblock becomes resident at the first touch.
    pub huge: bool,
    /// Free memory may be handed below; where not (it is locked, or a device was told of it), it never is.
    pub reported: bool,
    /// A forked child has this memory too, and may then not use the zone.
    pub shared: bool,
}

/// Usage of a zone, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneUsage {
    /// In all.
    pub pages: Pages,
    /// Handed out.
    pub used: Pages,
    /// Free, and memory is known to be behind them.
    pub idle: Pages,
    /// In closed pageblocks: free or not, they are not handed out.
    pub closed: Pages,
}

/// A range that cannot be taken out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Pages of it that are in use.
    pub pages: Pages,
}

/// See the module.
pub struct UserZone {
    pub(super) window: Window,
    pub(super) areas: Zone,
    pub(super) below: NonNull<dyn Host>,
    pub(super) memory: MemoryKind,
    /// Written once, by [`crate::pages::HeapPages::add_zone`]; 0 before.
    pub(super) number: AtomicU64,
    /// The zone is another process's, from which this one was forked.
    pub(super) foreign: AtomicBool,
    pub(super) pins: AtomicU32,
    pub(super) next: AtomicPtr<UserZone>,
}

// SAFETY: nothing of a zone belongs to one thread. `below`, the only field that is not `Send` by itself, points to a `Host`. That
// is `Sync` and so may be used from wherever the zone is; the zone does not own it.
unsafe impl Send for UserZone {}
// SAFETY: threads that share a zone reach its pageblocks under its lock, and its list and pins as atomics. By `below` they get no
// more than a shared reference to a `Host`, which is `Sync`.
unsafe impl Sync for UserZone {}

/// The zones of a heap, by ascending number.
pub struct UserZones {
    pub(super) first: AtomicPtr<UserZone>,
    pub(super) lock: Lock<u64, { rank::USER_ZONES }>,
    /// Bytes given back in all to the system's pool of huge pages.
    pub(super) pool_bytes: AtomicU64,
}

impl UserZones {
    /// No zones.
    pub(crate) const fn new() -> Self {
        Self { first: AtomicPtr::new(core::ptr::null_mut()), lock: Lock::new(0), pool_bytes: AtomicU64::new(0) }
    }

    /// Whether there are none, for those who need not know of one that comes or goes meanwhile.
    pub(super) fn is_empty(&self) -> bool {
        self.first.load(Acquire).is_null()
    }

    /// All zones; the caller holds the lock, or is the only thread.
    pub(super) fn iter(&self) -> impl Iterator<Item = &UserZone> {
        // SAFETY: `add_zone` promises that a zone lives, where it is, until it is removed from the list. The caller keeps that
        // from happening: it holds the list's lock, or is the only thread.
        let at = |at: &AtomicPtr<UserZone>| unsafe { at.load(Acquire).as_ref() };
        core::iter::successors(at(&self.first), move |zone| at(&zone.next))
    }

    /// Passes its locks to the turn of a rank: the list's before the zones'.
    pub(crate) fn freeze<P: Platform>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.lock);
        turn.locks(|| self.iter().map(|zone| zone.areas.lock_of_rank()));
    }
}

impl UserZone {
    /// Bytes of descriptors for `len` bytes of memory.
    pub const fn descriptor_bytes(len: usize) -> usize {
        len / PAGEBLOCK * size_of::<Pageblock>()
    }

    /// A zone of `run`, whose descriptors are at `blocks`.
    ///
    /// # Safety
    /// `run` is whole pageblocks of memory that is mapped and used by this zone alone as long as it is there; `blocks` is
    /// aligned to 64 and has [`UserZone::descriptor_bytes`] for it; `below` lives as long too.
    pub unsafe fn new(run: Run, blocks: *mut Pageblock, below: NonNull<dyn Host>, memory: MemoryKind) -> Self {
        let count = run.len / PAGEBLOCK;
        for block in 0..count {
            let fresh = State { dirty: !memory.zero, ..State::fresh() };
            // SAFETY: the caller promises room for a descriptor of each pageblock of `run`, which nothing else uses.
            unsafe { blocks.add(block).write(Pageblock::new(0, fresh)) };
        }
        // SAFETY: the caller promises that `below` lives as long as the zone.
        let granule = Order::of_align(unsafe { below.as_ref() }.release_unit());
        // SAFETY: the caller promises that `run` is whole pageblocks and that `blocks` lives as long as the zone; each was
        // described just now.
        let window = unsafe { Window::over(run, blocks, granule) };
        let mut areas = FreeAreas::new(0);
        areas.add(&window, BlockNo(0).row(count));
        Self {
            window,
            areas: Zone::new(areas),
            below,
            memory,
            number: AtomicU64::new(0),
            foreign: AtomicBool::new(false),
            pins: AtomicU32::new(0),
            next: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The class that it counts as in its node. What is neither locked nor of the pool of huge pages is as elastic as the heap.
    pub fn class(&self) -> ZoneClass {
        match self.memory {
            MemoryKind { reported: false, .. } => ZoneClass::Pinned,
            MemoryKind { huge: true, .. } => ZoneClass::Hugetlb,
            _ => ZoneClass::Normal,
        }
    }

    /// Whether the zone may have `pages` pages in a row, aligned to `align`. There must be 1 to 1024 of them, and the process
    /// must not be one that was forked from the zone's own.
    pub(crate) fn can_serve(&self, pages: Pages, align: Order) -> bool {
        (Pages(1)..=MAX_RUN).contains(&pages) && align <= Order::of_pages(MAX_RUN) && !self.is_foreign()
    }

    /// Pages that become resident as so many are touched in fresh memory.
    pub(crate) fn most_resident(&self, pages: Pages) -> Pages {
        if self.memory.huge { Pages::BLOCK * pages.blocks() } else { pages }
    }

    /// Number of the zone, from 1, which no other has; 0 before it is known to the heap.
    pub fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// The number that its events in the trace have; after 65,535 zones numbers come again.
    pub(crate) fn trace_number(&self) -> u16 {
        self.number() as u16
    }

    /// Undoes a pin; the zone may be gone from then on. There may be none left to undo: a signal handler of the thread that has
    /// it forked, and in the child all pins were dropped. A count that wrapped around would hold
    /// [`crate::pages::HeapPages::remove_zone`] up for good.
    pub(super) fn unpin(&self) {
        let _ = self.pins.fetch_update(Release, Relaxed, |pins| pins.checked_sub(1));
    }

    /// Whether this process was forked from the one that the zone is of, and so has the same memory. The zone is then neither
    /// handed out nor reported here.
    pub fn is_foreign(&self) -> bool {
        self.foreign.load(Relaxed)
    }
}
