//! Values that are computed by who misses them, once for all who want them: by a closure on a thread, or by a future.
//!
//! What a block or a function gives is not dropped where one of its variables panics as it goes out of scope. A hold would pin its
//! entry for ever then, and a landing would leave its flight linked. So a variable whose drop is code of the program's is dropped
//! by name while hold and landing are in variables, which a panic drops.

use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

use super::flight::Flight;
use super::fresh::Fresh;
use super::landing::{Landing, wait};
use super::waiting::Waiting;
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::shard::state::{Found, ShardGuard};
use crate::evictable_cache::shared::Shared;

/// The state of a key, as a look-up finds it where no other computes.
enum Boarded<'a, 'f, C: Content> {
    /// The entry.
    There(Hold<'a, C>),
    /// No entry, or one that is not what is wanted: the value is to be computed, and the flight is linked until its landing.
    First(Option<Hold<'a, C>>, Landing<'f>),
}

/// Who boards.
#[derive(Clone, Copy, PartialEq)]
enum Wants {
    /// The value, as it is or as another computes it.
    Value,
    /// To compute the value anew, alone.
    Turn,
}

/// Another's flight, found under the lock.
struct Behind<'a> {
    state: ShardGuard<'a>,
    /// Its address.
    flight: usize,
    /// The thread that computes, if one thread does.
    runner: usize,
    /// The calling thread computes.
    is_own: bool,
}

impl<'a> Behind<'a> {
    /// The flight of a key, which a thread awaits from now on, or a task; where there is none, the lock.
    fn find<C: Content>(
        state: ShardGuard<'a>,
        hash: u32,
        is_it: impl FnMut(&C::Key) -> bool,
        is_task: bool,
    ) -> Result<Self, ShardGuard<'a>> {
        let Some(other) = state.flights.find::<C>(hash, is_it) else { return Err(state) };
        let (flight, runner, is_own) = (other.address(), other.thread, other.is_run_here());
        if !is_task {
            other.is_awaited.set(true);
        }
        Ok(Self { state, flight, runner, is_own })
    }
}

/// A future that computes, and its flight. Code of the program's that the future runs, or drops, for the key of the flight would
/// wait for itself.
struct Load<'a, F> {
    future: Pin<&'a mut Option<F>>,
    flight: &'a Flight,
}

impl<F: Future> Load<'_, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().as_pin_mut().expect("it is there until this is dropped");
        self.flight.run_here(|| future.poll(context))
    }
}

impl<F> Drop for Load<'_, F> {
    fn drop(&mut self) {
        self.flight.run_here(|| self.future.set(None));
    }
}

impl<C: Content> Shared<C> {
    /// Looks for the entry of `fresh`'s key. Where that is not enough, and another's flight is not there, links this one.
    ///
    /// Whoever wants the value was counted as it missed it. A turn is counted here, once, as it comes.
    ///
    /// # Safety
    /// The flight stays where it is, and `fresh` has its key, until the landing was dropped.
    #[inline(always)]
    unsafe fn board<'a: 'f, 'f>(
        &'a self,
        fresh: &Fresh<'a, C>,
        flight: &'f Flight,
        wants: Wants,
    ) -> Result<Boarded<'a, 'f, C>, Behind<'a>> {
        let (hash, is_turn) = (fresh.hash(), wants == Wants::Turn);
        let shard = &self.shards()[self.home(hash)];
        let is_it = |key: &C::Key| C::is_same(key, fresh.key());
        loop {
            let now = self.time();
            // The program's clock, or a listener below, may have forked.
            fresh.assert_own();
            let mut state = shard.lock();
            if is_turn {
                // Before the look-up, which is a use of the entry.
                state = match Behind::find::<C>(state, hash, is_it, flight.is_of_task()) {
                    Ok(behind) => return Err(behind),
                    Err(state) => state,
                };
            }
            let former = match state.look_up::<C>(hash, is_it, now) {
                // SAFETY: in the index, under the lock.
                Found::Entry(entry) if !is_turn => return Ok(Boarded::There(unsafe { self.pin(entry) })),
                Found::Entry(entry) => Some(entry),
                Found::Over(place) => {
                    let over = self.take_over(&mut state, place);
                    drop(state);
                    over.tell_and_drop();
                    continue;
                }
                Found::Nothing => None,
            };
            if !is_turn {
                state = match Behind::find::<C>(state, hash, is_it, flight.is_of_task()) {
                    Ok(behind) => return Err(behind),
                    Err(state) => state,
                };
            }
            // Before the flight is linked, as this panics where an entry is held too often.
            // SAFETY: in the index, under the lock, since it was found.
            let former = former.map(|entry| unsafe { self.pin(entry) });
            state.counts.hits += u64::from(is_turn && former.is_some());
            state.counts.misses += u64::from(is_turn && former.is_none());
            // SAFETY: the caller's promise.
            unsafe { state.flights.link(flight) };
            let (landing, due) = (Landing::new(shard, flight, is_turn), state.flights.due());
            drop(state);
            if let Some(count) = due {
                shard.spread(count, |state| &mut state.flights);
            }
            return Ok(Boarded::First(former, landing));
        }
    }

    /// What `board` gives, after the ends of the flights that it finds instead.
    fn wait_to<'a, T>(&'a self, hash: u32, mut board: impl FnMut() -> Result<T, Behind<'a>>) -> T {
        let shard = &self.shards()[self.home(hash)];
        loop {
            match board() {
                Ok(boarded) => return boarded,
                Err(Behind { state, runner, is_own, .. }) => wait(shard, state, runner, is_own),
            }
        }
    }

    /// [`Shared::wait_to`] of a task.
    async fn wait_to_async<'a, T>(&'a self, hash: u32, mut board: impl FnMut() -> Result<T, Behind<'a>>) -> T {
        let waiting = Waiting::new(&self.shards()[self.home(hash)]);
        let boarding = poll_fn(|context| {
            // Wakers are code of the program's, so they are cloned and dropped under no lock.
            let waker = context.waker().clone();
            match board() {
                Ok(boarded) => {
                    drop(waker);
                    Poll::Ready(boarded)
                }
                Err(behind) => {
                    // SAFETY: this future is pinned.
                    unsafe { waiting.wait(behind.state, behind.flight, waker) };
                    Poll::Pending
                }
            }
        });
        // This and the waker above are dropped by name, while what came of boarding is in a variable (see this file's head).
        let boarded = boarding.await;
        drop(waiting);
        boarded
    }

    /// Looks for the entry of a key of which another's flight was seen, or for a flight.
    fn meet<'a>(
        &'a self,
        hash: u32,
        is_it: impl Fn(&C::Key) -> bool,
        is_task: bool,
    ) -> Result<Option<Hold<'a, C>>, Behind<'a>> {
        let now = self.time();
        let mut state = self.shards()[self.home(hash)].lock();
        match state.look_up::<C>(hash, &is_it, now) {
            // SAFETY: in the index, under the lock.
            Found::Entry(entry) => Ok(Some(unsafe { self.pin(entry) })),
            Found::Over(_) | Found::Nothing => match Behind::find::<C>(state, hash, is_it, is_task) {
                Ok(behind) => Err(behind),
                Err(_) => Ok(None),
            },
        }
    }

    /// The entry of a key of which another was seen to compute the value. `None`: it is to be computed still. Who has no block for
    /// the value yet waits so.
    pub fn follow(&self, hash: u32, is_it: impl Fn(&C::Key) -> bool) -> Option<Hold<'_, C>> {
        self.wait_to(hash, || self.meet(hash, &is_it, false))
    }

    /// [`Shared::follow`] of a task.
    pub async fn follow_async(&self, hash: u32, is_it: impl Fn(&C::Key) -> bool) -> Option<Hold<'_, C>> {
        self.wait_to_async(hash, || self.meet(hash, &is_it, true)).await
    }

    /// The entry of `fresh`'s key, or `fresh` with what `compute` puts in as its value, whether the cache keeps it or not.
    /// Other threads that want the same key meanwhile wait.
    ///
    /// # Panics
    /// If the closure wants the key itself.
    pub fn get_or_compute<'a, E>(
        &'a self,
        mut fresh: Fresh<'a, C>,
        compute: impl FnOnce(&mut Fresh<'a, C>) -> Result<(), E>,
    ) -> Result<Hold<'a, C>, E> {
        let flight = Flight::new(fresh.hash(), fresh.entry);
        // SAFETY: both stay until the landing is dropped, which is declared after them and given to `put_or_hold`.
        let board = || unsafe { self.board(&fresh, &flight, Wants::Value) };
        // Declared after `fresh`, so dropped before it: the key outlives the flight.
        let landing = match self.wait_to(fresh.hash(), board) {
            Boarded::There(hold) => {
                drop((fresh, compute));
                return Ok(hold);
            }
            Boarded::First(_, landing) => landing,
        };
        let begun = self.worth.begin();
        compute(&mut fresh)?;
        self.worth.end(begun);
        fresh.has_value = true;
        Ok(fresh.put_or_hold(landing))
    }

    /// Puts `fresh` in with the value that `compute` makes of the one that is there, if one is. Other threads that compute the
    /// key's value wait meanwhile. What the cache does not keep is held by the guard alone, and the former value leaves.
    ///
    /// # Panics
    /// If the closure computes the key's value itself.
    pub fn compute_anew<'a, E>(
        &'a self,
        mut fresh: Fresh<'a, C>,
        compute: impl FnOnce(&mut Fresh<'a, C>, Option<&C::Value>) -> Result<(), E>,
    ) -> Result<Hold<'a, C>, E> {
        let flight = Flight::new(fresh.hash(), fresh.entry);
        // SAFETY: both stay until the landing is dropped, which is declared after them and given to `put`.
        let board = || unsafe { self.board(&fresh, &flight, Wants::Turn) };
        // The landing is dropped first: the key outlives the flight, and no code of the program's runs in the drop of the former
        // value while others wait.
        let Boarded::First(former, landing) = self.wait_to(fresh.hash(), board) else {
            unreachable!("an entry is not what is wanted")
        };
        compute(&mut fresh, former.as_ref().map(Hold::value))?;
        fresh.has_value = true;
        let hold = fresh.put_or_hold(landing);
        drop(former);
        Ok(hold)
    }

    /// [`Shared::get_or_compute`] by a future, which `put` writes the value of. Where this is dropped before its end the next
    /// who waits computes.
    pub async fn get_or_load<'a, T, E>(
        &'a self,
        fresh: Fresh<'a, C>,
        load: impl Future<Output = Result<T, E>>,
        put: impl FnOnce(&mut Fresh<'a, C>, T),
    ) -> Result<Hold<'a, C>, E> {
        let flight = Flight::of_task(fresh.hash(), fresh.entry);
        // SAFETY: this future is pinned, so the flight stays, and `fresh` with its key; the landing is declared after them.
        let board = || unsafe { self.board(&fresh, &flight, Wants::Value) };
        let boarded = self.wait_to_async(fresh.hash(), board).await;
        // Declared after `fresh`, so dropped before it: the key outlives the flight.
        let landing = match boarded {
            Boarded::There(hold) => {
                drop((fresh, load, put));
                return Ok(hold);
            }
            Boarded::First(_, landing) => landing,
        };
        let begun = self.worth.begin();
        // Dropped before the landing, so that two loads of the key are never there at once.
        let mut load = Load { future: pin!(Some(load)), flight: &flight };
        let value = poll_fn(|context| load.poll(context)).await?;
        drop(load);
        self.worth.end(begun);
        // Code of the program's that weighs the value, or is told of what leaves for it, is inside the load as well.
        Ok(flight.run_here(|| {
            // In this order, so that the landing is dropped first.
            let (mut fresh, landing) = (fresh, landing);
            put(&mut fresh, value);
            fresh.has_value = true;
            fresh.put_or_hold(landing)
        }))
    }
}
