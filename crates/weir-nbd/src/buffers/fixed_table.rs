//! The runs that are registered in the slots of one ring (io_uring's fixed buffers), and what becomes of each.
//!
//! The kernel pins the pages of a registered run. An operation on it need not look them up, and they stay resident until
//! the slot is emptied. So a run is, in this order: registered in an empty slot; *held* by a request; *idle*, for the next
//! request to hold; *retired*, which no request gets any more; and, after its worker has emptied the slot, ordinary memory
//! that goes back to its pool.
//!
//! Three things meet: the end of a request (on any thread), a pressure event (on Weir's), and the worker. The worker alone
//! may change the slots of its ring.
//!
//! - **Operation against squeeze.** A squeeze retires idle runs alone. A run that a request holds becomes idle or retired
//!   only by `put`. A request's buffer is put when all operations on it are done, as an operation owns its buffer until
//!   its result is delivered. The interleaving that this excludes: the kernel writes to a slot's pages for an operation.
//!   The slot is emptied and the run goes back. A new owner finds the operation's bytes in it.
//! - **Put against squeeze.** Both are under one lock, and a squeeze leaves a mark that a put finds. The interleaving that
//!   this excludes: a squeeze finds no idle run; then a run is put and stays pinned while memory is short.
//! - **Emptied before freed.** A retired run lies in the table until the worker takes it with its slot number. The worker
//!   empties the slot, and drops the run after that. The interleaving that this excludes: the run's pages are released and
//!   its addresses get other pages, while the slot still names the old ones.
//!
//! The model is `crates/weir-models/tests/fixed_table.rs`.

use super::sync::{Mutex, MutexGuard, PoisonError};

/// A run with its slot.
pub struct Registered<R> {
    /// The slot's number in the ring's table.
    pub slot: u16,
    /// The run, which is `pages` pages.
    pub run: R,
    pub pages: usize,
}

/// See the module.
pub struct FixedTable<R>(Mutex<State<R>>);

struct State<R> {
    idle: Vec<Registered<R>>,
    retired: Vec<Registered<R>>,
    /// Memory is short: nothing becomes idle.
    is_squeezed: bool,
}

impl<R> FixedTable<R> {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "a model checker's lock has no default")]
    pub fn new() -> Self {
        Self(Mutex::new(State { idle: Vec::new(), retired: Vec::new(), is_squeezed: false }))
    }

    /// The idle run that was put last of those with at least `pages` pages, but not much more, for a request to hold.
    pub fn hold(&self, pages: usize) -> Option<Registered<R>> {
        let mut state = self.lock();
        // As much longer as a pool's run may be.
        let at = state.idle.iter().rposition(|registered| (pages..=pages + pages / 4).contains(&registered.pages))?;
        Some(state.idle.remove(at))
    }

    /// A request that held a run has ended, and no operation on it is under way.
    pub fn put(&self, registered: Registered<R>) {
        let mut state = self.lock();
        let state = &mut *state;
        let place = if state.is_squeezed { &mut state.retired } else { &mut state.idle };
        place.push(registered);
    }

    /// Memory is short: all idle runs are retired, and what is put from now on.
    pub fn squeeze(&self) {
        let mut state = self.lock();
        state.is_squeezed = true;
        state.retire_idle();
    }

    /// The squeeze window has ended.
    pub fn relax(&self) {
        self.lock().is_squeezed = false;
    }

    /// Retires all idle runs, and no others.
    pub fn retire_idle(&self) {
        self.lock().retire_idle();
    }

    /// Retires the idle run that was put first; whether there was one.
    pub fn retire_oldest(&self) -> bool {
        let mut state = self.lock();
        if state.idle.is_empty() {
            return false;
        }
        let oldest = state.idle.remove(0);
        state.retired.push(oldest);
        true
    }

    /// Retires a run that is neither idle nor held: its slot could not be emptied.
    pub fn retire(&self, registered: Registered<R>) {
        self.lock().retired.push(registered);
    }

    /// Whether nothing may become idle now.
    pub fn is_squeezed(&self) -> bool {
        self.lock().is_squeezed
    }

    /// For the worker: takes what is retired. It empties the slots, then drops the runs.
    pub fn take_retired(&self) -> Vec<Registered<R>> {
        std::mem::take(&mut self.lock().retired)
    }

    /// How many runs are idle.
    #[cfg(any(test, loom))]
    pub fn idle(&self) -> usize {
        self.lock().idle.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> State<R> {
    fn retire_idle(&mut self) {
        self.retired.append(&mut self.idle);
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn run(slot: u16, pages: usize) -> Registered<()> {
        Registered { slot, run: (), pages }
    }

    #[test]
    fn a_request_holds_the_run_of_its_length_that_was_put_last() {
        let table = FixedTable::new();
        [run(0, 16), run(1, 16), run(2, 1), run(3, 20)].into_iter().for_each(|run| table.put(run));
        let slot = |pages| table.hold(pages).map(|registered| registered.slot);
        assert_eq!((slot(16), slot(16), slot(16)), (Some(3), Some(1), Some(0)), "a quarter longer will do");
        assert_eq!((slot(2), slot(1), slot(1)), (None, Some(2), None));
    }

    #[test]
    fn a_squeeze_retires_what_is_idle_then_and_what_is_put_until_it_ends() {
        let table = FixedTable::new();
        (0..3).for_each(|slot| table.put(run(slot, 1)));
        let held = table.hold(1).expect("an idle run");
        table.squeeze();
        assert!(table.is_squeezed() && table.hold(1).is_none());
        let slots = || table.take_retired().iter().map(|registered| registered.slot).collect::<Vec<_>>();
        assert_eq!(slots(), [0, 1], "not the one that is held");
        table.put(held);
        assert_eq!((table.idle(), slots()), (0, vec![2]));
        table.relax();
        table.put(run(4, 1));
        assert_eq!((table.idle(), slots()), (1, vec![]));
    }

    #[test]
    fn the_oldest_goes_first() {
        let table = FixedTable::new();
        (0..3).for_each(|slot| table.put(run(slot, 1)));
        assert!(table.retire_oldest());
        assert_eq!(table.take_retired()[0].slot, 0);
        table.retire_idle();
        assert!(!table.retire_oldest());
        assert_eq!(table.take_retired().len(), 2);
        table.retire(run(7, 1));
        assert_eq!(table.take_retired()[0].slot, 7);
    }
}
