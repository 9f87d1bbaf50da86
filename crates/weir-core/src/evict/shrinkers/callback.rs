//! A callback that a program registers, with what it is called for and the queue of the thread that calls it.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::base::level::Level;
use crate::base::time::{Nanos, Time};
use crate::base::zone_class::ZoneClass;
use crate::platform::Clock;
use crate::platform::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, constructor};
use crate::policy::deferred::{DEFAULT_SEEKS, Deferred};
use crate::policy::prices::{Priced, Prices};
use crate::reclaim::Event;
use crate::telemetry::name::Name;

/// Bytes that a shrinker is told to free at a time at least: some 128 objects (`SHRINK_BATCH`, Linux) of half a KiB.
pub const DEFAULT_BATCH: usize = 64 << 10;
/// The value that [`Shrink::scan`] returns to say that it cannot free anything now.
pub const STOP: usize = usize::MAX;

/// Why a shrinker is to free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ScanReason {
    /// Memory is short elsewhere, and not yet for this process: what has to be written back first had better stay.
    Mild,
    /// Memory is short.
    Pressure,
    /// Memory is so short that tasks suffer.
    Severe,
    /// The system refused this process memory, and an allocation will fail unless something is freed.
    Shortage,
}

/// The task of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The scan takes size >> priority.
    pub priority: u32,
    /// Bytes that it takes at most.
    pub most: usize,
    /// Bytes that are missing: when the callback says that as many are free, it is told to free no more.
    pub enough: usize,
    /// Why.
    pub reason: ScanReason,
}

/// A cache of a program's own that can be made smaller.
///
/// None of these is called under a lock of the heap's, and no two of them at once for one registration. They may
/// allocate, free, register and unregister.
pub trait Shrink: Sync {
    /// Bytes that could be freed now; 0: nothing. Should be quick: it is called before each scan.
    fn count(&self) -> usize;

    /// Frees about `bytes`, beginning with what was not used for longest. Returns the bytes freed, or [`STOP`] where nothing can
    /// be freed for now. An example is a lock that is held and not to be waited for.
    fn scan(&self, bytes: usize, reason: ScanReason) -> usize;

    /// Pressure has ended: the cache may grow again.
    fn relieved(&self) {}
}

/// A panic, or another exception, left a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// The functions that a registration calls, with panics caught by whoever registers.
pub trait Callback: Sync {
    /// [`Shrink::count`].
    fn count(&self) -> Result<usize, Panicked> {
        Ok(0)
    }
    /// [`Shrink::scan`].
    fn scan(&self, bytes: usize, reason: ScanReason) -> Result<usize, Panicked> {
        let _ = (bytes, reason);
        Ok(STOP)
    }
    /// What the bytes of an evictable cache cost, and how many could be freed now. Called under the registry's lock, so it runs
    /// nothing of the program's and takes no other lock.
    fn prices(&self) -> Option<(&Prices, usize)> {
        None
    }
    /// A run of scans is over. `Err`: a scan of it panicked, and was caught there.
    fn scanned(&self) -> Result<(), Panicked> {
        Ok(())
    }
    /// [`Shrink::relieved`].
    fn relieved(&self) -> Result<(), Panicked> {
        Ok(())
    }
    /// The level of pressure is another.
    fn event(&self, event: Event) -> Result<(), Panicked> {
        let _ = event;
        Ok(())
    }
    /// Something waits in the queue that this callback is the bell of.
    fn ring(&self) {}
}

/// The reason for which a callback is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Class {
    /// The callback shrinks an evictable cache, which is cheaper to fill again than a program's own.
    Cache = 0,
    /// The callback shrinks a cache of the program's own.
    Program = 1,
    /// The callback hears of pressure.
    Subscriber = 2,
    /// The callback makes a file descriptor readable when something waits in a queue.
    Bell = 3,
}

/// How many classes there are.
pub(crate) const CLASSES: usize = 4;

/// How a callback is registered.
#[derive(Clone, Copy, Debug)]
pub struct CallbackSpec<'a> {
    /// For messages and figures; cut at 32 bytes.
    pub name: &'a [u8],
    /// The reason for which it is called.
    pub class: Class,
    /// Cost of making an object again, in accesses to storage; 0: none.
    pub seeks: u32,
    /// Bytes that a scan is told to free at a time; at least 1.
    pub batch: usize,
    /// The least level that a subscriber hears of; of relief it hears after that.
    pub level: Level,
    /// The class of zones that a shrinker's cache lies in: it is scanned where that is short.
    pub zone: ZoneClass,
    /// The number of the one zone of the program's own that it lies in ([`Entry::lies_in`]); 0 where it is in none.
    pub zone_number: u64,
}

impl Default for CallbackSpec<'_> {
    fn default() -> Self {
        Self {
            name: b"",
            class: Class::Program,
            seeks: DEFAULT_SEEKS,
            batch: DEFAULT_BATCH,
            level: Level::Some,
            zone: ZoneClass::Normal,
            zone_number: 0,
        }
    }
}

/// How long one call runs before the callback is named in a message, ns.
pub const SLOW_NS: Nanos = Nanos(1_000_000_000);

/// After an allocation waited in vain for a callback of the program's no other waits for it for so many times as long. It may
/// need a lock that allocating threads hold, as an interpreter's: each would wait for nothing. So they wait for 1 % of the time
/// at most.
pub(super) const SPARED: u64 = 100;

/// In [`Entry::spared_until`]: no thread of this forked child serves it.
pub(super) const NOT_SERVED: u64 = u64::MAX;

/// How long an allocation waits for an evictable cache at least, ns: its thread gets a CPU in less where dozens of threads want
/// one each (choice). With [`SPARED`] in vain it is a sixth of the time.
pub(super) const CACHE_PATIENCE: Nanos = Nanos(1_000_000_000);

/// Requests that are posted to an entry, in [`Entry::wanted`].
pub(super) const SCAN: u32 = 1;
pub(super) const RELIEF: u32 = 2;
pub(super) const EVENT: u32 = 4;
pub(super) const RING: u32 = 8;

/// Bits of an entry's state.
///
/// The callback is called at this moment.
pub(super) const RUNNING: u32 = 1;
/// The callback is not waited for, as it took longer than `callback_ms`, or was not called in that time.
pub(super) const LATE: u32 = 2;
/// The callback was named for that.
pub(super) const NAMED: u32 = 4;
/// The callback panicked, and is not called again.
pub(super) const BROKEN: u32 = 8;
/// The callback was unregistered by itself: the thread that calls it disposes of it.
pub(super) const GONE: u32 = 16;
/// The callback was told of pressure, and not yet of relief.
pub(super) const TOLD: u32 = 32;
/// A thread waits to unregister it: a run that goes on in batches ends after this one.
pub(super) const LEAVING: u32 = 64;
/// The callback is called to scan.
pub(super) const SCANNING: u32 = 128;

/// A registered callback. It stays where it is until it is disposed of.
///
/// All but the totals is written under the lock of the list ([`super`]).
pub struct Entry {
    pub(super) next: AtomicPtr<Entry>,
    /// Rises with each registration; 0: not registered.
    pub(super) number: AtomicU64,
    pub(super) callback: NonNull<dyn Callback>,
    pub(super) dispose: unsafe fn(NonNull<Entry>),
    pub(super) queue: NonNull<Queue>,
    pub(super) name: Name,
    pub(super) class: Class,
    pub(super) seeks: u32,
    pub(super) batch: usize,
    pub(super) level: Level,
    pub(super) zone: ZoneClass,
    pub(super) zone_number: u64,
    pub(super) wanted: AtomicU32,
    pub(super) priority: AtomicU32,
    /// Bytes that a scan may take at most; 0: no scan is posted.
    pub(super) most: AtomicUsize,
    /// Bytes freed with which a scan ends; 0: no scan is posted.
    pub(super) enough: AtomicUsize,
    pub(super) reason: AtomicU32,
    /// The event that is to be told, packed.
    pub(super) event: AtomicU64,
    pub(super) state: AtomicU32,
    /// The thread that calls it.
    pub(super) runner: AtomicUsize,
    /// When something was posted first, or when it was called last, ns.
    pub(super) since: AtomicU64,
    /// Until then no allocation waits for it, ns ([`SPARED`], [`NOT_SERVED`]).
    pub(super) spared_until: AtomicU64,
    /// When the call began that its run is in now, ns: a run calls it several times. 0: it is between two, in Weir's code.
    pub(super) called: AtomicU64,
    pub(super) deferred: Deferred,
    /// Bytes that it said it could free, less those that it freed then.
    pub(super) counted: AtomicUsize,
    pub(super) calls: AtomicU64,
    pub(super) freed: AtomicU64,
}

// SAFETY: `callback` points to a `Callback`, which is `Sync`; `queue` to a `Queue` of atomics. Both live as long as the entry,
// as `Entry::new` demands, and the entry is disposed of on whichever thread its maker said it may be.
unsafe impl Send for Entry {}
// SAFETY: what changes is atomic; the callback is reached by shared references alone, and is `Sync`.
unsafe impl Sync for Entry {}

/// Figures of a registered callback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallbackStats {
    /// Times that it was called for something.
    pub calls: u64,
    /// Bytes that it said it freed.
    pub freed: u64,
    /// Bytes that are left to scan.
    pub deferred: usize,
    /// The callback has run for longer than `callback_ms`, or has waited that long to be called.
    pub is_late: bool,
    /// The callback panicked and is not called any more. Not so an evictable cache, which pressure goes on to reach.
    pub is_disabled: bool,
}

impl Entry {
    /// An entry to be registered.
    ///
    /// # Safety
    /// `callback` and `queue` stay valid until `dispose` is called. The registry calls that once, with the entry's address, after
    /// the last call of the callback, on any thread.
    pub unsafe fn new(
        spec: &CallbackSpec<'_>,
        callback: NonNull<dyn Callback>,
        queue: NonNull<Queue>,
        dispose: unsafe fn(NonNull<Self>),
    ) -> Self {
        Self {
            next: AtomicPtr::new(core::ptr::null_mut()),
            number: AtomicU64::new(0),
            callback,
            dispose,
            queue,
            name: Name::new(spec.name),
            class: spec.class,
            seeks: spec.seeks,
            batch: spec.batch.max(1),
            level: spec.level.max(Level::Some),
            zone: spec.zone,
            zone_number: spec.zone_number,
            wanted: AtomicU32::new(0),
            priority: AtomicU32::new(u32::MAX),
            most: AtomicUsize::new(0),
            enough: AtomicUsize::new(0),
            reason: AtomicU32::new(0),
            event: AtomicU64::new(0),
            state: AtomicU32::new(0),
            runner: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            spared_until: AtomicU64::new(0),
            called: AtomicU64::new(0),
            deferred: Deferred::new(),
            counted: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }
    }

    /// Bytes that the last scan left to be freed, and what they cost to make again, in accesses to storage an object; `None`: it
    /// is no cache of the program's own, or not called any more.
    pub(crate) fn left(&self) -> Option<(usize, u32)> {
        let is_asked = self.class == Class::Program && !self.is(BROKEN | GONE);
        is_asked.then(|| (self.counted.load(Relaxed), self.seeks))
    }

    /// The callback's figures.
    pub fn stats(&self) -> CallbackStats {
        CallbackStats {
            calls: self.calls.load(Relaxed),
            freed: self.freed.load(Relaxed),
            deferred: self.deferred.get(),
            is_late: self.is(LATE),
            is_disabled: self.is(BROKEN),
        }
    }

    /// The cache with its prices, where these are known and what it is asked for is to be expected of it.
    pub(super) fn priced(&self) -> Option<Priced<'_>> {
        // SAFETY: the callback lives as long as its entry, as `Entry::new` demands.
        let (prices, bytes) = unsafe { self.callback.as_ref() }.prices()?;
        if self.is(BROKEN | LATE) { None } else { Priced::new(prices, bytes) }
    }

    /// Whether its cache lies in zones of a class: in the one of this number, or in any where that is 0.
    pub(super) fn lies_in(&self, (zone, number): (ZoneClass, u64)) -> bool {
        self.zone == zone && (number == 0 || self.zone_number == number)
    }

    /// The queue that it is called from.
    pub fn queue(&self) -> &Queue {
        // SAFETY: `Entry::new` demands that the queue outlives the entry.
        unsafe { self.queue.as_ref() }
    }

    /// Adds what a scan is to do to what it was asked before.
    pub(super) fn want(&self, scan: Scan) {
        self.priority.fetch_min(scan.priority, Relaxed);
        self.most.fetch_max(scan.most, Relaxed);
        self.enough.fetch_max(scan.enough, Relaxed);
    }

    pub(super) fn is(&self, state: u32) -> bool {
        self.state.load(Acquire) & state != 0
    }

    pub(super) fn set(&self, state: u32) {
        self.state.fetch_or(state, AcqRel);
    }

    pub(super) fn clear(&self, state: u32) {
        self.state.fetch_and(!state, AcqRel);
    }

    /// Calls the program's code by `f`, and notes for how long.
    pub(super) fn timed<T>(&self, clock: &impl Clock, f: impl FnOnce() -> T) -> T {
        self.called.store(clock.now().0.max(1), Relaxed);
        let result = f();
        self.called.store(0, Relaxed);
        result
    }

    /// When it is to be named, ns, if the program's code runs and goes on to; `None`: it was, or is not called now.
    pub(super) fn named_at(&self) -> Option<Time> {
        let called = self.called.load(Relaxed);
        (called != 0 && self.is(RUNNING) && !self.is(NAMED)).then(|| Time(called).saturating_add(SLOW_NS))
    }

    /// Whether something waits to be done that may be done now.
    pub(super) fn is_ready(&self) -> bool {
        self.wanted.load(Relaxed) != 0 && !self.is(RUNNING | BROKEN | GONE)
    }
}

/// A queue in which callbacks wait to be called, and whose thread calls them: one at a time, unless one is late.
#[derive(Debug, Default)]
pub struct Queue {
    /// Rises when something is posted, or the queue ends: its threads sleep on it.
    pub(super) posted: AtomicU32,
    /// The entry that the queue is at; null: none.
    pub(super) current: AtomicPtr<Entry>,
    /// The entry on another queue that is called when something is posted here; null: none.
    pub(super) bell: AtomicPtr<Entry>,
    is_over: AtomicBool,
    /// The thread that serves this queue alone; 0: there is none, or more than one. The platform's own.
    pub server: AtomicU32,
    /// Forks before that thread was made, which is there for as long as their number is this. The platform's own.
    pub server_forks: AtomicU32,
    /// The maker of that thread, an address of the platform's; 0: it is not to have one.
    pub maker: AtomicUsize,
}

impl Queue {
    constructor! {
        /// An empty queue.
        pub fn new() -> Self {
            Self {
                posted: AtomicU32::new(0),
                current: AtomicPtr::new(core::ptr::null_mut()),
                bell: AtomicPtr::new(core::ptr::null_mut()),
                is_over: AtomicBool::new(false),
                server: AtomicU32::new(0),
                server_forks: AtomicU32::new(0),
                maker: AtomicUsize::new(0),
            }
        }
    }

    /// To sleep on while it is what [`Queue::seen`] said before [`super::Callbacks::take`].
    pub fn posted(&self) -> &AtomicU32 {
        &self.posted
    }

    /// What [`Queue::posted`] is; `None`: the queue is over. The word is read first, so an end that this does not see changes it.
    pub fn seen(&self) -> Option<u32> {
        let seen = self.posted.load(SeqCst);
        (!self.is_over()).then_some(seen)
    }

    /// Has the queue's threads end.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
        self.posted.fetch_add(1, AcqRel);
    }

    /// Whether [`Queue::end`] was called.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}
