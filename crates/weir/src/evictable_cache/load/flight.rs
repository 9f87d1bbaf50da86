//! Values that are being computed: one thread or task computes, others of the same key wait for it.
//!
//! A flight is a node on the computing thread's stack, or in the pinned future that computes. It is linked into its shard
//! under the lock, and unlinked in the section that puts the value in. How threads wait for that is told in
//! `weir_core::evict::landings`, and how tasks do in `waiters`.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::table::{Linked, Links, Table};
use crate::evictable_cache::entry::header::{Content, Header};
use crate::evictable_cache::entry::place::Place;
use crate::evictable_cache::host::thread;

/// The thread of a flight that is a task's: none.
const NO_THREAD: usize = 0;

/// A value on its way. The cells are used under the shard's lock.
pub struct Flight {
    hash: u32,
    /// The block that is to be the entry; it has its key.
    pub entry: NonNull<Header>,
    /// The thread that computes; none, where a task does.
    pub thread: usize,
    /// The thread on which the task runs just now.
    runs_on: AtomicUsize,
    pub is_awaited: Cell<bool>,
    /// The key was removed, or another value was put in, since the flight was linked: the value is not to be kept.
    pub is_outdated: Cell<bool>,
    links: Links<Self>,
}

// SAFETY: the cells, and what the pointers refer to, are used under the shard's lock.
unsafe impl Send for Flight {}
// SAFETY: as above.
unsafe impl Sync for Flight {}

impl Flight {
    /// The flight of an entry to come, of this thread.
    pub fn new(hash: u32, entry: NonNull<Header>) -> Self {
        Self { thread: thread(), ..Self::of_task(hash, entry) }
    }

    /// The flight of an entry to come, of a task that may run on any thread.
    pub fn of_task(hash: u32, entry: NonNull<Header>) -> Self {
        let (is_awaited, is_outdated, links) = (Cell::new(false), Cell::new(false), Links::new());
        Self { hash, entry, thread: NO_THREAD, runs_on: AtomicUsize::new(NO_THREAD), is_awaited, is_outdated, links }
    }

    /// The address, which is this flight's until its landing was dropped.
    pub fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Whether a task computes.
    pub fn is_of_task(&self) -> bool {
        self.thread == NO_THREAD
    }

    /// Whether the calling thread is inside the computation: it would wait for itself.
    pub fn is_run_here(&self) -> bool {
        [self.thread, self.runs_on.load(Relaxed)].contains(&thread())
    }

    /// Notes that its key was removed, or that another value was put in. What the computation does so by itself comes before its
    /// value.
    fn outdate(&self) {
        if !self.is_run_here() {
            self.is_outdated.set(true);
        }
    }

    /// Runs a step of a task's computation on this thread. Only this thread asks whether it is the one, so no order is needed.
    pub fn run_here<R>(&self, step: impl FnOnce() -> R) -> R {
        self.runs_on.store(thread(), Relaxed);
        let result = step();
        self.runs_on.store(NO_THREAD, Relaxed);
        result
    }
}

impl Linked for Flight {
    fn links(&self) -> &Links<Self> {
        &self.links
    }

    fn hash(&self) -> u32 {
        self.hash
    }
}

/// The flights of a shard.
pub type Flights = Table<Flight>;

impl Flights {
    /// The flight of a key, if its value is being computed.
    #[inline]
    pub fn find<C: Content>(&self, hash: u32, mut is_it: impl FnMut(&C::Key) -> bool) -> Option<&Flight> {
        // SAFETY: the block of a linked flight has its key, and the caller has the lock for these flights.
        self.of(hash).find(|flight| is_it(unsafe { C::key(flight.entry) }))
    }

    /// Outdates the flight of a key, if there is one: the key is removed, or another value is put in.
    #[inline]
    pub fn outdate<C: Content>(&self, hash: u32, is_it: impl FnMut(&C::Key) -> bool) {
        if !self.is_empty()
            && let Some(flight) = self.find::<C>(hash, is_it)
        {
            flight.outdate();
        }
    }

    /// Outdates the flights for which `is_meant` holds.
    pub fn outdate_if(&self, is_meant: impl Fn(&Flight) -> bool) {
        self.iter().filter(|flight| is_meant(flight)).for_each(Flight::outdate);
    }

    /// Unlinks the flights of other threads than the calling one, in a forked child, which has none of them. So it does with
    /// flights of this thread whose entries are the parent's: their keys are not to be read.
    pub fn inherit(&mut self, place: &Place) {
        let thread = thread();
        self.retain(|flight| flight.thread == thread && !place.is_foreign(flight.entry.cast()));
    }
}
