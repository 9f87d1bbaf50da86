//! The registry of a program's callbacks, and who calls them when.
//!
//! Reclaim never calls a program's code. It *posts* what is wanted to the entries, wakes the threads of their queues, and waits
//! for a bounded time. A thread that may run a program's code *takes* an entry of its queue and *runs* it ([`calling`]). All
//! state is written under one lock, under which no callback runs; a callback runs for at most one thread at a time.
//!
//! - **Posting merges.** An entry keeps what is wanted in words, not in a list: the lowest priority, the worst reason, the most
//!   that is missing, the latest event. An evictable cache that was not called yet keeps the first priority, unless an allocation
//!   fails. The balancer posts nothing to one that is at it. A callback that is slow finds one request, however many there were.
//! - **Late.** A queue calls one callback at a time. One that runs for longer than `callback_ms` is *late*. Nothing waits for it,
//!   nothing is posted to it but events, and another thread of the queue goes on with the next entry. What a program's shrinker was
//!   to free meanwhile is kept for its next call. After [`calling::SLOW_NS`] it is named in a message, once a run: by a thread of
//!   a queue that looks for work, or by the balancer.
//! - **Patience.** An allocation waits for an evictable cache for [`CACHE_PATIENCE`] at least, late or not. Its thread may get no
//!   CPU for long, where many programs are short of memory at once. Who does not wait goes on to take what is not there, and
//!   is killed. The cache's own code needs no lock of the program's, and a listener of its seldom does.
//! - **Standing still.** A process may be stopped or frozen. Who wakes long after its own time takes what runs for begun just now,
//!   and an allocation waits once more.
//! - **Spared.** An allocation that reclaims for itself and waited for a callback in vain spares it: none waits for it for a
//!   hundred times `callback_ms`. What is posted is posted all the same, and the balancer goes on waiting.
//! - **Unregistering** waits until the callback does not run: `unregistering.rs`.
//! - **Completion** clears `RUNNING` and then raises `finished`, which sleepers compare under the futex. One that saw `RUNNING`
//!   set read `finished` before, so that its sleep ends.
//!
//! The model is `crates/weir-models/tests/evict/shrinkers.rs`.

pub mod callback;
pub mod calling;
mod shrink;
mod unregistering;
mod waits;

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::base::time::{Nanos, Time};
use crate::base::zone_class::ZoneClass;
use crate::platform::lock::{Lock, RankTurn};
use crate::platform::sync::{AtomicU32, AtomicUsize, array, constructor};
use crate::platform::{Clock, Diagnostics, Wait, rank};
use crate::policy::scan_priority;
use crate::reclaim::PressureEvents;
use callback::{
    BROKEN, CACHE_PATIENCE, CLASSES, Class, EVENT, Entry, LATE, NAMED, NOT_SERVED, Queue, RELIEF, RING, RUNNING, SCAN,
    SCANNING, SPARED, Scan, ScanReason, TOLD,
};
use waits::Waits;

/// Who waits for shrinkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// The balancer, or whoever reclaims for pressure: for `callback_ms`.
    Balancer,
    /// An allocation that will be served all the same.
    Direct,
    /// An allocation that would fail.
    Failing,
}

/// See the module.
pub struct Callbacks {
    list: Lock<List, { rank::CALLBACKS }>,
    /// Rises when a callback has returned.
    finished: AtomicU32,
    /// How many are registered, by class.
    counts: [AtomicUsize; CLASSES],
    /// How many shrinkers there are of caches in zones of each class.
    shrinkers: [AtomicUsize; ZoneClass::COUNT],
    /// Bytes that shrinkers freed and reclaim has not counted yet, by class.
    freed: [AtomicUsize; CLASSES],
    events: PressureEvents,
}

struct List {
    first: *mut Entry,
    last_number: u64,
    /// The threads that unregister an entry that runs.
    waits: Waits,
    /// The number of the entry that was taken last: the next one is behind it.
    taken: u64,
}

// SAFETY: the entries that the pointer leads to are `Send` and `Sync`.
unsafe impl Send for List {}

impl List {
    fn iter(&self) -> impl Iterator<Item = &Entry> + Clone {
        // SAFETY: an entry is valid until it is disposed of. It is off the list before that, under the lock that the caller has
        // for this list.
        core::iter::successors(unsafe { self.first.as_ref() }, |entry| unsafe { entry.next.load(Relaxed).as_ref() })
    }
}

impl Callbacks {
    constructor! {
        /// None registered.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self {
                list: Lock::new(List { first: null_mut(), last_number: 0, waits: Waits::new(), taken: 0 }),
                finished: AtomicU32::new(0),
                counts: array![AtomicUsize::new(0); CLASSES],
                shrinkers: array![AtomicUsize::new(0); ZoneClass::COUNT],
                freed: array![AtomicUsize::new(0); CLASSES],
                events: PressureEvents::new(),
            }
        }
    }

    /// Changes of pressure.
    pub fn events(&self) -> &PressureEvents {
        &self.events
    }

    /// How many callbacks of a class are registered.
    pub fn count(&self, class: Class) -> usize {
        self.counts[class as usize].load(Relaxed)
    }

    /// How many shrinkers there are of caches in zones of a class.
    pub fn shrinkers(&self, zone: ZoneClass) -> usize {
        self.shrinkers[zone as usize].load(Relaxed)
    }

    /// Whether an evictable cache in zones of a class is waited for, as none was in vain of late.
    pub(crate) fn has_cache<P: Wait + Clock>(&self, platform: &P, zone: ZoneClass) -> bool {
        let now = platform.now();
        let is_waited_for = |entry: &Entry| {
            let is_cache = entry.class == Class::Cache && entry.zone == zone;
            is_cache && !entry.is(BROKEN) && now >= Time(entry.spared_until.load(Relaxed))
        };
        self.list.lock(platform).iter().any(is_waited_for)
    }

    /// Calls `f` with what says whether a cache lies in the zone of the program's own that has this number. Under the lock.
    pub(crate) fn with_zones<P: Wait, R>(&self, platform: &P, f: impl FnOnce(&dyn Fn(u64) -> bool) -> R) -> R {
        let list = self.list.lock(platform);
        f(&|number| list.iter().any(|entry| entry.zone_number == number && !entry.is(BROKEN)))
    }

    /// Counts the shrinker that `entry` is, if it is one: in, or out. One that is broken is out.
    fn count_shrinker(&self, entry: &Entry, count: impl Fn(&AtomicUsize)) {
        if matches!(entry.class, Class::Cache | Class::Program) {
            count(&self.shrinkers[entry.zone as usize]);
        }
    }

    /// Whether the calling thread is in a callback.
    pub(crate) fn runs_here<P: Wait>(&self, platform: &P) -> bool {
        let me = thread_of(platform);
        self.list.lock(platform).iter().any(|entry| entry.is(RUNNING) && entry.runner.load(Relaxed) == me)
    }

    /// Whether pressure is to be heard of whatever the heap holds.
    pub fn are_there(&self) -> bool {
        self.counts.iter().any(|count| count.load(Relaxed) > 0) || self.events.is_read()
    }

    // ---- registering -------------------------------------------------------------------------------------------

    /// Registers an entry.
    ///
    /// # Safety
    /// The entry is new, and lives where it is until it is disposed of ([`Entry::new`]).
    pub unsafe fn register<P: Wait>(&self, platform: &P, entry: NonNull<Entry>) {
        let mut list = self.list.lock(platform);
        list.last_number += 1;
        // SAFETY: the caller's promise.
        let new = unsafe { entry.as_ref() };
        new.number.store(list.last_number, Relaxed);
        new.next.store(list.first, Relaxed);
        list.first = entry.as_ptr();
        self.counts[new.class as usize].fetch_add(1, Relaxed);
        self.count_shrinker(new, |count| _ = count.fetch_add(1, Relaxed));
    }

    /// Makes `bell` the entry that is called when something is posted to `queue`; `None`: none.
    pub fn set_bell<P: Wait>(&self, platform: &P, queue: &Queue, bell: Option<NonNull<Entry>>) {
        let list = self.list.lock(platform);
        queue.bell.store(bell.map_or(null_mut(), NonNull::as_ptr), Relaxed);
        // Something may wait since before the bell was there.
        if list.iter().any(|entry| core::ptr::eq(entry.queue(), queue) && entry.wanted.load(Relaxed) != 0) {
            Self::ring(platform, queue);
        }
    }

    // ---- posting -----------------------------------------------------------------------------------------------

    /// Posts to an entry, under the lock, and wakes its queue.
    fn post<P: Wait + Clock>(&self, platform: &P, entry: &Entry, what: u32, now: Time) {
        if entry.wanted.fetch_or(what, Relaxed) == 0 && !entry.is(RUNNING) {
            entry.since.store(now.0, Relaxed);
        }
        let queue = entry.queue();
        Self::wake_queue(platform, queue);
        Self::ring(platform, queue);
    }

    fn wake_queue<P: Wait>(platform: &P, queue: &Queue) {
        queue.posted.fetch_add(1, SeqCst);
        platform.wake_all(&queue.posted);
    }

    /// Has the bell of a queue called, under the lock.
    fn ring<P: Wait>(platform: &P, queue: &Queue) {
        // SAFETY: null, or an entry that was set under the lock, and is taken off the queue before it is unregistered.
        if let Some(bell) = unsafe { queue.bell.load(Relaxed).as_ref() } {
            bell.wanted.fetch_or(RING, Relaxed);
            Self::wake_queue(platform, bell.queue());
        }
    }

    /// Has all shrinkers of a class, of caches that [lie in](Entry::lies_in) `zone`, scan: evictable caches on the heap in the order
    /// of their prices ([`crate::policy::prices`]), unless the scan takes all that there is. `who` waits for them, and the bytes that
    /// were freed since the last call are returned. Nothing happens where a callback calls this, as it would wait for itself.
    pub(crate) fn scan<P: Wait + Clock + Diagnostics>(
        &self,
        platform: &P,
        (class, zone): (Class, (ZoneClass, u64)),
        scan: Scan,
        who: Waiter,
    ) -> usize {
        if who == Waiter::Balancer {
            self.name_slow(platform);
        }
        if self.count(class) == 0 {
            return 0;
        }
        let (me, now) = (thread_of(platform), platform.now());
        let list = self.list.lock(platform);
        if list.iter().any(|entry| entry.is(RUNNING) && entry.runner.load(Relaxed) == me) {
            return 0;
        }
        // One that waits to be called since long is asked for more.
        let is_asked = |entry: &&Entry| {
            entry.class == class && entry.lies_in(zone) && !entry.is(BROKEN) && !(entry.is(LATE) && entry.is(RUNNING))
        };
        let is_by_price = class == Class::Cache && zone.0 == ZoneClass::Normal && scan.priority > scan_priority::LAST;
        let bar = is_by_price.then(|| shrink::bar(list.iter().filter(is_asked), &scan));
        for entry in list.iter().filter(is_asked) {
            let Some(scan) = bar.map_or(Some(scan), |bar| shrink::part(entry, scan, &bar)) else { continue };
            // What was made to shrink hears of relief.
            entry.set(TOLD);
            // A cache that was not called yet is not asked for more. Otherwise a thread that gets no CPU for a time would empty
            // it at once when it gets one. The first request says what was missing.
            let is_cache = entry.class == Class::Cache;
            // Nor does the balancer ask one that is at it: what that evicts does not show in what is missing before another
            // allocator has released it.
            if is_cache && entry.is(SCANNING) && who == Waiter::Balancer {
                continue;
            }
            let is_waiting = is_cache && entry.wanted.load(Relaxed) & SCAN != 0;
            if !is_waiting || scan.reason == ScanReason::Shortage {
                entry.want(scan);
            }
            entry.reason.fetch_max(scan.reason as u32, Relaxed);
            self.post(platform, entry, SCAN, now);
        }
        // One that does not return is left alone. Its next call begins with what was wanted meanwhile, or a count that is slow
        // would begin each time with the least, and free nothing.
        let is_missed = |entry: &&Entry| {
            entry.class == Class::Program && entry.lies_in(zone) && entry.is(RUNNING) && entry.is(LATE)
        };
        if class == Class::Program && scan.enough < usize::MAX {
            list.iter().filter(is_missed).for_each(|entry| entry.want(scan));
        }
        drop(list);
        self.wait_for_class(platform, (class, zone), now, who);
        self.freed[class as usize].swap(0, Relaxed)
    }

    /// Waits from `begin` until nothing of a class that is to be waited for waits or runs. At the deadline, the rest is late. An
    /// allocation does not wait for what is [spared](callback::SPARED), and spares what it waited for in vain.
    fn wait_for_class<P: Wait + Clock + Diagnostics>(
        &self,
        platform: &P,
        (class, zone): (Class, (ZoneClass, u64)),
        begin: Time,
        who: Waiter,
    ) {
        let is_patient = class == Class::Cache && who != Waiter::Balancer;
        let spares = is_patient || who == Waiter::Direct;
        let patience = callback_ns(platform).max(if is_patient { CACHE_PATIENCE } else { Nanos::ZERO });
        let (mut deadline, mut stood_still) = (begin + patience, false);
        loop {
            let seen = self.finished.load(SeqCst);
            let now = platform.now();
            let list = self.list.lock(platform);
            let is_open = |entry: &&Entry| {
                entry.class == class
                    && entry.lies_in(zone)
                    && !entry.is(BROKEN)
                    && (is_patient || !entry.is(LATE))
                    && !(spares && now < Time(entry.spared_until.load(Relaxed)))
                    && (entry.is(RUNNING) || entry.wanted.load(Relaxed) & SCAN != 0)
            };
            if !list.iter().any(|entry| is_open(&entry)) {
                return;
            }
            if now >= deadline {
                // Not what another thread posted, or one began, later than that.
                let is_late = |entry: &&Entry| Time(entry.since.load(Relaxed)) + callback_ns(platform) <= now;
                list.iter().filter(is_open).filter(is_late).for_each(|entry| {
                    entry.set(LATE);
                    if spares {
                        entry.spared_until.store((now + callback_ns(platform) * SPARED).0, Relaxed);
                    }
                    // Its queue has other threads, which may go on with the next entry now.
                    Self::wake_queue(platform, entry.queue());
                });
                return;
            }
            drop(list);
            platform.wait_for(&self.finished, seen, Some((deadline - now).0));
            // Who wakes so late was stopped or frozen, with the thread that it waits for.
            let now = platform.now();
            if is_patient && !stood_still && now.since(deadline) >= callback::SLOW_NS {
                (deadline, stood_still) = (now + patience, true);
            }
        }
    }

    /// Tells subscribers of pressure.
    pub(crate) fn raise<P: Wait + Clock>(&self, platform: &P, level: Level, cause: Cause) {
        let now = platform.now();
        let list = self.list.lock(platform);
        let event = self.events.note(level, cause);
        for entry in list.iter().filter(|entry| !entry.is(BROKEN)) {
            let hears = entry.class == Class::Subscriber && level >= entry.level;
            if hears {
                entry.event.store(event.pack(), Relaxed);
                self.post(platform, entry, EVENT, now);
            }
            if hears || matches!(entry.class, Class::Cache | Class::Program) {
                entry.set(TOLD);
            }
        }
        drop(list);
        self.events.wake(platform);
    }

    /// Has a subscriber hear of what was before it came: of the latest event, unless it was `seen`, and of the relief after it.
    pub fn catch_up<P: Wait + Clock>(&self, platform: &P, entry: &Entry, seen: u32) {
        let now = platform.now();
        let _list = self.list.lock(platform);
        let event = self.events.latest();
        if event.level > Level::None {
            entry.set(TOLD);
        }
        if event.generation != seen {
            entry.event.store(event.pack(), Relaxed);
            self.post(platform, entry, EVENT, now);
        }
    }

    /// Tells of relief all that were told of pressure.
    pub(crate) fn relieve<P: Wait + Clock>(&self, platform: &P) {
        let now = platform.now();
        let list = self.list.lock(platform);
        let event = self.events.note(Level::None, self.events.latest().cause);
        for entry in list.iter().filter(|entry| entry.is(TOLD) && !entry.is(BROKEN)) {
            entry.clear(TOLD);
            entry.event.store(event.pack(), Relaxed);
            let what = if entry.class == Class::Subscriber { EVENT } else { RELIEF };
            self.post(platform, entry, what, now);
        }
        drop(list);
        self.events.wake(platform);
    }

    // ---- fork --------------------------------------------------------------------------------------------------

    /// Passes its lock to the turn of a rank.
    pub(crate) fn freeze<P: Wait>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.list);
    }

    /// In a forked child: callbacks that the parent's other threads were in do not run here, and no thread comes back to them.
    /// Until one serves it, no allocation waits for it. The child hears of pressure anew. What was posted is void. A callback that was
    /// told of pressure is to be told of relief, as soon as a thread takes it.
    pub(crate) fn inherit<P: Wait>(&self, platform: &P) {
        let me = thread_of(platform);
        let mut list = self.list.lock(platform);
        list.waits.inherit(me);
        // One that waits in the call that the fork interrupted looks again.
        self.finished.fetch_add(1, SeqCst);
        let latest = self.events.latest();
        let relief = if latest.level > Level::None { self.events.note(Level::None, latest.cause) } else { latest };
        for entry in list.iter() {
            if entry.is(RUNNING) && entry.runner.load(Relaxed) != me {
                entry.clear(RUNNING | SCANNING | NAMED);
                // Another may be there by now, as this one is late: it may run on this thread.
                let current = &entry.queue().current;
                if current.load(Relaxed) == core::ptr::from_ref(entry).cast_mut() {
                    current.store(null_mut(), Relaxed);
                }
            }
            let hears = entry.is(TOLD);
            entry.clear(LATE | TOLD);
            entry.spared_until.store(NOT_SERVED, Relaxed);
            entry.priority.store(u32::MAX, Relaxed);
            entry.most.store(0, Relaxed);
            entry.enough.store(0, Relaxed);
            entry.event.store(relief.pack(), Relaxed);
            let what = if entry.class == Class::Subscriber { EVENT } else { RELIEF };
            entry.wanted.store(if hears { what } else { 0 }, Relaxed);
        }
    }

    /// [`Callbacks::each`], unless the lock is held: in the child of a fork that took none, it is for good.
    pub fn try_each<P: Wait>(&self, platform: &P, f: impl FnMut(&Entry)) {
        if let Some(list) = self.list.try_lock(platform) {
            list.iter().for_each(f);
        }
    }

    /// Calls `f` with each entry, under the lock.
    pub fn each<P: Wait>(&self, platform: &P, f: impl FnMut(&Entry)) {
        self.list.lock(platform).iter().for_each(f);
    }
}

/// Tells threads apart: the address of a word that each has.
pub(crate) fn thread_of<P: Wait>(platform: &P) -> usize {
    platform.held_ranks().map_or(0, |word| core::ptr::from_ref(word) as usize)
}

fn callback_ns<P: Diagnostics>(platform: &P) -> Nanos {
    platform.tunables().callback_ms.ns()
}
