//! The values of a shard that are being computed.

use core::ptr::NonNull;
use weir_linux::process::evictable_caches as process;

use super::flight::Flight;
use super::header::Content;
use super::shard::{Guard, Shard, State};

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
/// If the flight is the calling thread's, or that of one that waits for the calling thread: its closure wants the key that
/// it computes, directly or through others.
pub unsafe fn wait(shard: &Shard, state: Guard<'_>, flight: NonNull<Flight>) {
    // SAFETY: a linked flight is valid while the lock is held, which it is as long as this reference is used.
    let flight = unsafe { flight.as_ref() };
    let runner = flight.thread;
    flight.is_awaited.set(true);
    let seen = shard.landings.seen();
    drop(state);
    assert!(
        runner != process::this_thread(),
        "a closure of get_or_insert_with asks for the key whose value it computes"
    );
    let mut is_circle = false;
    shard.landings.wait(seen, |word, seen| is_circle = !process::sleep_for(word, seen, runner));
    assert!(!is_circle, "closures of get_or_insert_with ask for the keys whose values each other's threads compute");
}
