//! Values that are being computed: one thread computes, others of the same key wait for it.
//!
//! A flight is a node on the computing thread's stack, linked into its shard under the lock. Who finds one for its key
//! notes, under the lock, that it waits, reads the shard's count of landings, gives the lock back and sleeps while the
//! count is what it was. A flight that has ended is unlinked under the lock, in the same section that puts the value in;
//! then the count goes up, if one waits, and all sleepers look again from the start.
//!
//! The interleaving that this excludes: the value is put in and the sleepers are woken after one has decided to sleep and
//! before it sleeps. It read the count under the lock while the flight was linked, so the count has changed since, and
//! the kernel does not let it sleep.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Acquire;
use weir_linux::process::evictable_caches as process;

use super::header::{Content, Header};
use super::shard::{Guard, Shard, State};

/// A value on its way. The cells are used under the shard's lock.
pub struct Flight {
    hash: u64,
    /// The block that is to be the entry; it has its key.
    entry: NonNull<Header>,
    /// The thread that computes.
    thread: usize,
    is_awaited: Cell<bool>,
    next: Cell<Option<NonNull<Flight>>>,
}

impl Flight {
    /// For an entry to come, of this thread.
    pub fn new(hash: u64, entry: NonNull<Header>) -> Self {
        let (thread, is_awaited, next) = (process::this_thread(), Cell::new(false), Cell::new(None));
        Self { hash, entry, thread, is_awaited, next }
    }

    /// Whether somebody waits for it. Read under the lock, once it is unlinked.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited.get()
    }
}

impl State {
    /// The flight of a key, if its value is being computed.
    pub fn flight_of<C: Content>(&self, hash: u64, mut is_it: impl FnMut(&C::Key) -> bool) -> Option<NonNull<Flight>> {
        let mut at = self.flights;
        while let Some(flight) = at {
            // SAFETY: a linked flight stays where it is, and its block has its key, until it is unlinked under the lock.
            let here = unsafe { flight.as_ref() };
            // SAFETY: as long as the flight is linked its entry has its key.
            if here.hash == hash && is_it(unsafe { C::key(here.entry) }) {
                return Some(flight);
            }
            at = here.next.get();
        }
        None
    }

    /// Links a flight.
    ///
    /// # Safety
    /// It stays where it is, and its block has its key, until [`State::land`].
    pub unsafe fn take_off(&mut self, flight: &Flight) {
        flight.next.set(self.flights);
        self.flights = Some(NonNull::from(flight));
    }

    /// Unlinks a flight, if it is linked. Whoever waits for it is to be woken when the lock is given back.
    pub fn land(&mut self, flight: &Flight) {
        self.retain_flights(|other| !core::ptr::eq(other, flight));
    }

    /// Unlinks the flights of other threads than the calling one: in a forked child, which has none of them.
    pub fn inherit_flights(&mut self) {
        let thread = process::this_thread();
        self.retain_flights(|flight| flight.thread == thread);
    }

    fn retain_flights(&mut self, is_kept: impl Fn(&Flight) -> bool) {
        let (mut at, mut last): (_, Option<NonNull<Flight>>) = (self.flights, None);
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
                None => self.flights = at,
            }
        }
    }
}

/// Waits until the flight ends, or for no reason; gives the lock back.
///
/// # Safety
/// The flight is linked in the shard whose lock is given.
///
/// # Panics
/// If the flight is the calling thread's: its closure uses the key that it computes.
pub unsafe fn wait(shard: &Shard, state: Guard<'_>, flight: NonNull<Flight>) {
    // SAFETY: a linked flight is valid while the lock is held, which it is as long as this reference is used.
    let flight = unsafe { flight.as_ref() };
    let is_own = flight.thread == process::this_thread();
    flight.is_awaited.set(true);
    let seen = shard.landings.load(Acquire);
    drop(state);
    assert!(!is_own, "a closure of get_or_insert_with asks for the key whose value it computes");
    process::sleep(&shard.landings, seen);
}
