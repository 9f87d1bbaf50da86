//! Values that are being computed: one thread or task computes, others of the same key wait for it.
//!
//! A flight is a node on the computing thread's stack, or in the pinned future that computes. It is linked into its shard
//! under the lock, and unlinked in the section that puts the value in. How threads wait for that is told in
//! `weir_core::evict::landings`, and how tasks do in `waiters`.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::evictable_cache::entry::header::{Content, Header};
use crate::evictable_cache::host::thread;

/// The thread of a flight that is a task's: none.
const NO_THREAD: usize = 0;

/// A value on its way. The cells are used under the shard's lock.
pub struct Flight {
    hash: u32,
    /// The block that is to be the entry; it has its key.
    entry: NonNull<Header>,
    /// The thread that computes; none, where a task does.
    pub thread: usize,
    /// The thread on which the task runs just now.
    runs_on: AtomicUsize,
    pub is_awaited: Cell<bool>,
    next: Cell<Option<NonNull<Flight>>>,
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
        let (is_awaited, next) = (Cell::new(false), Cell::new(None));
        Self { hash, entry, thread: NO_THREAD, runs_on: AtomicUsize::new(NO_THREAD), is_awaited, next }
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

    /// Runs a step of a task's computation on this thread. Only this thread asks whether it is the one, so no order is needed.
    pub fn run_here<R>(&self, step: impl FnOnce() -> R) -> R {
        self.runs_on.store(thread(), Relaxed);
        let result = step();
        self.runs_on.store(NO_THREAD, Relaxed);
        result
    }
}

/// The flights of a shard.
pub struct Flights(Option<NonNull<Flight>>);

impl Flights {
    /// None.
    pub const fn new() -> Self {
        Self(None)
    }

    /// The flight of a key, if its value is being computed.
    pub fn find<C: Content>(&self, hash: u32, mut is_it: impl FnMut(&C::Key) -> bool) -> Option<&Flight> {
        // SAFETY: a linked flight stays where it is, and its block has its key, until it is unlinked under the lock. The
        // caller has the lock for these flights.
        let flights = core::iter::successors(self.0, |flight| unsafe { flight.as_ref() }.next.get());
        // SAFETY: the same.
        let mut flights = flights.map(|flight| unsafe { flight.as_ref() });
        // SAFETY: the same.
        flights.find(|flight| flight.hash == hash && is_it(unsafe { C::key(flight.entry) }))
    }

    /// Links a flight.
    ///
    /// # Safety
    /// The flight stays where it is, and its block has its key, until [`Flights::unlink`].
    pub unsafe fn link(&mut self, flight: &Flight) {
        flight.next.set(self.0);
        self.0 = Some(NonNull::from(flight));
    }

    /// Unlinks a flight, if it is linked. Whoever waits for it is to be woken when the lock is given back.
    pub fn unlink(&mut self, flight: &Flight) {
        self.retain(|other| !core::ptr::eq(other, flight));
    }

    /// Unlinks the flights of other threads than the calling one: in a forked child, which has none of them.
    pub fn inherit(&mut self) {
        let thread = thread();
        self.retain(|flight| flight.thread == thread);
    }

    fn retain(&mut self, is_kept: impl Fn(&Flight) -> bool) {
        let (mut at, mut last): (_, Option<NonNull<Flight>>) = (self.0, None);
        while let Some(flight) = at {
            // SAFETY: linked flights are valid, and the lock is held.
            let here = unsafe { flight.as_ref() };
            at = here.next.get();
            if is_kept(here) {
                last = Some(flight);
                continue;
            }
            match last {
                // SAFETY: `last` is linked.
                Some(last) => unsafe { last.as_ref() }.next.set(at),
                None => self.0 = at,
            }
        }
    }
}
