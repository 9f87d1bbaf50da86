//! A zone of the program's own: memory that it mapped as it likes, handed out in runs of pages, and reported below by
//! what backs it. The areas, the isolation and the reporter are the heap's; only who is below differs.
//!
//! It never grows. An allocation that finds nothing while a batch is in flight waits for that batch, so that isolation
//! makes none fail here either.
//!
//! # Hot-unplug
//!
//! A range of pageblocks is *closed*: its free pages are on no list any more, what is freed there joins them, and once
//! none is in use the range is out of use and may be unmapped. [`Pages::zone_offline`] opens it again if some are.
//!
//! # How it is found
//!
//! A heap holds its zones in a list. Whoever visits one without holding the list's lock has *pinned* it; removing waits
//! until nobody has.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::base::invalid_free::InvalidFree;
use crate::base::run::Run;
use crate::base::units::MAX_RUN;
use crate::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, order_of};
use crate::pages::pageblock::{Pageblock, State};
use crate::pages::report::Site;
use crate::pages::window::Window;
use crate::pages::zone::{FreeAreas, PageRun, Purpose, Zone};
use crate::pages::{Pages, Short};
use crate::platform::lock::Lock;
use crate::platform::rank;
use crate::platform::{Host, Platform};
use crate::policy::refault::Again;
use crate::telemetry::trace::Place;

/// How the memory of a zone behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKind {
    /// It reads as zero where it was not used yet.
    pub zero: bool,
    /// A whole pageblock becomes resident at the first touch.
    pub huge: bool,
    /// Free memory may be handed below; where not (it is locked, or a device was told of it), it never is.
    pub reported: bool,
    /// It is the same memory in a forked child, who may then not use the zone.
    pub shared: bool,
}

/// What a zone holds, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneUsage {
    /// In all.
    pub pages: usize,
    /// Handed out.
    pub used: usize,
    /// Free, and memory is known to be behind them.
    pub idle: usize,
    /// In closed pageblocks: free or not, they are not handed out.
    pub closed: usize,
}

/// A range that cannot be taken out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Pages of it that are in use.
    pub pages: usize,
}

/// See the module.
pub struct UserZone {
    window: Window,
    areas: Zone,
    below: NonNull<dyn Host>,
    memory: MemoryKind,
    /// Written once, by [`Pages::add_zone`]; 0 before.
    number: AtomicU64,
    /// It is another process's: this one was forked from it.
    foreign: AtomicBool,
    pins: AtomicU32,
    next: AtomicPtr<UserZone>,
}

// SAFETY: nothing of a zone belongs to one thread. `below`, the only field that is not `Send` by itself, points to a `Host`,
// which is `Sync` and so may be used from wherever the zone is; the zone does not own it.
unsafe impl Send for UserZone {}
// SAFETY: threads that share a zone reach its pageblocks under its lock, its list and pins as atomics, and by `below` get no
// more than a shared reference to a `Host`, which is `Sync`.
unsafe impl Sync for UserZone {}

/// The zones of a heap, by ascending number.
pub struct UserZones {
    first: AtomicPtr<UserZone>,
    lock: Lock<u64, { rank::USER_ZONES }>,
}

impl UserZones {
    /// None.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self { first: AtomicPtr::new(core::ptr::null_mut()), lock: Lock::new(0) }
    }

    /// All of them; the caller holds the lock, or is the only thread.
    fn iter(&self) -> impl Iterator<Item = &UserZone> {
        // SAFETY: `add_zone` promises that a zone lives, where it is, until it is removed from the list, and the caller keeps
        // that from happening: it holds the list's lock, or is the only thread.
        let at = |at: &AtomicPtr<UserZone>| unsafe { at.load(Acquire).as_ref() };
        core::iter::successors(at(&self.first), move |zone| at(&zone.next))
    }
}

impl UserZones {
    /// Takes the locks of rank `rank`, for `fork`.
    pub(crate) fn freeze<P: Platform>(&self, platform: &P, rank: u32) {
        match rank {
            rank::USER_ZONES => self.lock.acquire(platform),
            rank::ZONE => self.iter().for_each(|zone| zone.areas.acquire(platform)),
            _ => {}
        }
    }

    /// Undoes [`UserZones::freeze`].
    ///
    /// # Safety
    /// The caller, or the parent that it was forked from, froze them.
    pub(crate) unsafe fn thaw<P: Platform>(&self, platform: &P, rank: u32) {
        // SAFETY: `freeze` took these locks and made no guards. The zones on the list are the same ones, as the list's lock,
        // of the lower rank, is given back after theirs.
        unsafe {
            match rank {
                rank::USER_ZONES => self.lock.release(platform),
                rank::ZONE => self.iter().for_each(|zone| zone.areas.release(platform)),
                _ => {}
            }
        }
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
    /// `run` is whole pageblocks of memory that is mapped and nobody else's as long as the zone is there; `blocks` is
    /// aligned to 64 and has [`UserZone::descriptor_bytes`] for it; `below` lives as long too.
    pub unsafe fn new(run: Run, blocks: *mut Pageblock, below: NonNull<dyn Host>, memory: MemoryKind) -> Self {
        let count = run.len / PAGEBLOCK;
        for block in 0..count {
            let fresh = State { dirty: !memory.zero, ..State::fresh() };
            // SAFETY: the caller promises room for a descriptor of each pageblock of `run`, which nothing else uses.
            unsafe { blocks.add(block).write(Pageblock::new(0, fresh)) };
        }
        // SAFETY: the caller promises that `run` is whole pageblocks and that `blocks` lives as long as the zone; each was
        // described just now.
        let window = unsafe { Window::over(run, blocks) };
        let mut areas = FreeAreas::new(0);
        areas.add(&window, 0, count);
        Self {
            window,
            areas: Lock::new(areas),
            below,
            memory,
            number: AtomicU64::new(0),
            foreign: AtomicBool::new(false),
            pins: AtomicU32::new(0),
            next: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Its number, from 1, which its events in the trace have; after 65,535 zones numbers come again.
    pub fn number(&self) -> u16 {
        self.number.load(Relaxed) as u16
    }

    /// Undoes a pin; the zone may be gone from then on. There may be none left to undo: a signal handler of the thread that has
    /// it forked, and in the child all pins were dropped. A count that wrapped around would hold [`Pages::remove_zone`] up for
    /// good.
    fn unpin(&self) {
        let _ = self.pins.fetch_update(Release, Relaxed, |pins| pins.checked_sub(1));
    }

    /// Whether this process was forked from the one that the zone is of, which has the same memory: it is then neither
    /// handed out nor reported here.
    pub fn is_foreign(&self) -> bool {
        self.foreign.load(Relaxed)
    }
}

impl<P: Platform> Pages<P> {
    /// Makes a zone known, so that reclaim scans it as all else.
    ///
    /// # Safety
    /// It lives, where it is, until [`Pages::remove_zone`] returns, is added once, and is used through shared references alone
    /// meanwhile; `zone` may come from one.
    pub unsafe fn add_zone(&self, zone: NonNull<UserZone>) {
        let mut last = self.user.lock.lock(&self.platform);
        *last += 1;
        // SAFETY: the caller promises that the zone lives and is used through shared references alone; this is another.
        unsafe { zone.as_ref() }.number.store(*last, Relaxed);
        let end = self.user.iter().last().map_or(&self.user.first, |zone| &zone.next);
        end.store(zone.as_ptr(), Release);
    }

    /// Forgets a zone; when this returns, no thread but the caller's uses it.
    pub fn remove_zone(&self, zone: &UserZone) {
        let guard = self.user.lock.lock(&self.platform);
        let links = core::iter::once(&self.user.first).chain(self.user.iter().map(|zone| &zone.next));
        if let Some(link) = links.into_iter().find(|link| core::ptr::eq(link.load(Relaxed), zone)) {
            link.store(zone.next.load(Relaxed), Release);
        }
        drop(guard);
        while zone.pins.load(Acquire) > 0 {
            // Whoever has it pinned is in the middle of a batch, or between two.
            drop(self.batch(0));
        }
    }

    /// Takes `pages` pages (1 to 1024) in a row, aligned to the order `align`; [`Short`] if there are none, or the zone is
    /// another process's. O(1) but for a batch that is waited for.
    pub fn zone_take(&self, zone: &UserZone, pages: usize, align: u32) -> Result<PageRun, Short> {
        if pages == 0 || pages > MAX_RUN || align > order_of(MAX_RUN) || zone.is_foreign() {
            return Err(Short);
        }
        let take = || zone.areas.lock(&self.platform).take(&zone.window, pages, align, Purpose::Run, zone.memory.huge);
        let run = take().or_else(|_| {
            // What is missing may be isolated.
            drop(self.batch(0));
            take()
        })?;
        self.events.taken_again(&self.platform, run.again);
        Ok(PageRun { again: Again::NONE, ..run })
    }

    /// Gives pages back that were taken together, or a part of them.
    ///
    /// Returns what is wrong with them where that is seen: they are not the zone's, or free already.
    pub fn zone_give(&self, zone: &UserZone, addr: usize, pages: usize) -> Result<(), InvalidFree> {
        let last = addr.checked_add(pages.max(1) * PAGE - 1).ok_or(InvalidFree::ForeignPointer)?;
        let (Some(page), Some(_)) = (zone.window.page_of(addr), zone.window.page_of(last)) else {
            return Err(InvalidFree::ForeignPointer);
        };
        if !addr.is_multiple_of(PAGE) {
            return Err(InvalidFree::InteriorPointer);
        }
        if zone.is_foreign() {
            return Ok(());
        }
        let mut areas = zone.areas.lock(&self.platform);
        if !areas.is_used(&zone.window, page, pages) {
            return Err(InvalidFree::DoubleFree);
        }
        areas.give(&zone.window, page, pages, 0);
        drop(areas);
        self.events.freed(&self.platform, pages * PAGE);
        Ok(())
    }

    /// Address of a run's first page.
    pub fn zone_addr(&self, zone: &UserZone, run: PageRun) -> usize {
        zone.window.addr_of(run.page)
    }

    /// What the zone holds now. O(its pageblocks).
    pub fn zone_usage(&self, zone: &UserZone) -> ZoneUsage {
        let areas = zone.areas.lock(&self.platform);
        let closed = areas.closed(&zone.window);
        ZoneUsage { pages: areas.pages, used: areas.used, idle: areas.idle, closed }
    }

    /// Closes `blocks`, numbered from the zone's first; returns how many of their pages are in use. At 0 they are out of
    /// use; else [`Pages::zone_usage`] and further calls of this say how it goes on as they are freed.
    pub fn zone_close(&self, zone: &UserZone, blocks: Range<u32>) -> usize {
        // A batch in flight would put its pages back into the range later.
        let _none_in_flight = self.batch(0);
        zone.areas.lock(&self.platform).close(&zone.window, blocks)
    }

    /// Puts closed pageblocks back into use.
    pub fn zone_open(&self, zone: &UserZone, blocks: Range<u32>) {
        zone.areas.lock(&self.platform).open(&zone.window, blocks);
    }

    /// Takes `blocks` out of use if none of their pages is in use; else all stays as it was. O(their number).
    pub fn zone_offline(&self, zone: &UserZone, blocks: Range<u32>) -> Result<(), InUse> {
        match self.zone_close(zone, blocks.clone()) {
            0 => Ok(()),
            pages => {
                self.zone_open(zone, blocks);
                Err(InUse { pages })
            }
        }
    }

    /// Calls `f` for each zone that may be reported, one after another, without the list's lock; adds up what it says.
    pub(crate) fn each_user_zone(&self, mut f: impl FnMut(&Site<P, dyn Host>) -> usize) -> usize {
        let (mut last, mut sum) = (0, 0);
        loop {
            let guard = self.user.lock.lock(&self.platform);
            let is_next = |zone: &UserZone| zone.number.load(Relaxed) > last;
            let reported = |zone: &&UserZone| is_next(zone) && zone.memory.reported && !zone.is_foreign();
            let Some(zone) = self.user.iter().find(reported) else { return sum };
            zone.pins.fetch_add(1, Relaxed);
            drop(guard);
            last = zone.number.load(Relaxed);
            sum += f(&Site {
                platform: &self.platform,
                // SAFETY: `UserZone::new` requires that the host lives as long as the zone, which is pinned here.
                below: unsafe { zone.below.as_ref() },
                in_flight: &self.nodes.get(0).batch,
                window: &zone.window,
                zone: &zone.areas,
                place: Place::User,
                number: zone.number(),
            });
            zone.unpin();
        }
    }

    /// In a forked child: whoever had a zone pinned is not there, and what is shared is the parent's.
    pub(crate) fn inherit_zones(&self) {
        for zone in self.user.iter() {
            // A pin of this thread's own may be among them (see `UserZone::unpin`).
            zone.pins.store(0, Relaxed);
            zone.foreign.store(zone.memory.shared || zone.is_foreign(), Relaxed);
        }
    }

    /// Whether every list and count of a zone is right, as [`crate::heap::Heap::audit`] says it of the heap's own.
    pub fn zone_audit(&self, zone: &UserZone) -> Result<(), crate::base::fault::Fault> {
        let _no_batch_in_flight = self.batch(0);
        zone.areas.lock(&self.platform).audit(&zone.window).map(|_| ())
    }
}

const _: () = assert!(PAGEBLOCK == PAGEBLOCK_PAGES * PAGE);
