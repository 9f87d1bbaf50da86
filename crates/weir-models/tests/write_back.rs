//! The removal of a dirty entry beside the end of its write-back, and beside another thread that dirties it again. The waiting
//! is `landings.rs` itself on a model checker's atomics; the kernel's sleep is one that compares and sleeps in one step.
//!
//! The removal finds under the shard's lock that the entry is being written back, notes that it waits, reads the count of
//! landings, gives the lock back and sleeps. The end of the write-back takes the note under the lock, gives the lock back,
//! counts a landing and wakes. What must not happen: the removal sleeps on although its entry has landed; it takes an entry
//! out that is dirty; bytes are subtracted twice of an entry that was taken out while it was written.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

/// What `landings.rs` is made of, here.
mod sync {
    pub use loom::sync::atomic::AtomicU32;
    macro_rules! constructor {
        ($($item:tt)*) => { $($item)* };
    }
    pub(crate) use constructor;
}

#[path = "../../weir-core/src/evict/landings.rs"]
mod landings;

use landings::Landings;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What the shard's lock guards, of one entry.
struct State {
    is_in: bool,
    is_dirty: bool,
    is_writing: bool,
    is_awaited: bool,
    /// Bytes that are counted as being written.
    writing_bytes: i32,
    /// The value, and what the store has of it.
    value: u32,
    stored: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The note is taken before the entry is changed, in a section of its own.
    EarlyNote,
    /// What leaves while it is written is subtracted when it leaves, and again when it lands.
    Twice,
}

struct Shared {
    state: Mutex<State>,
    landings: Landings,
    queue: Mutex<()>,
    sleepers: Condvar,
    flaw: Flaw,
}

impl Shared {
    fn sleep(&self, word: &AtomicU32, seen: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Relaxed) == seen {
            drop(self.sleepers.wait(queue).unwrap());
        }
    }

    fn wake_all(&self) {
        let _queue = self.queue.lock().unwrap();
        self.sleepers.notify_all();
    }

    fn hand_out(state: &mut State) -> u32 {
        (state.is_dirty, state.is_writing) = (false, true);
        state.writing_bytes += 1;
        state.value
    }

    /// The end of a write-back that wrote `written`.
    fn land(&self, written: u32) {
        let early = self.flaw == Flaw::EarlyNote && std::mem::take(&mut self.state.lock().unwrap().is_awaited);
        let mut state = self.state.lock().unwrap();
        state.is_writing = false;
        state.stored = written;
        if state.is_in || self.flaw == Flaw::Twice {
            state.writing_bytes -= 1;
        }
        let late = std::mem::take(&mut state.is_awaited);
        drop(state);
        if if self.flaw == Flaw::EarlyNote { early } else { late } {
            self.landings.landed(|_| self.wake_all());
        }
    }

    /// Removes the entry, once it is written back; hands it out itself where it is dirty.
    fn remove(&self) {
        loop {
            let mut state = self.state.lock().unwrap();
            if state.is_writing {
                state.is_awaited = true;
                let seen = self.landings.seen();
                drop(state);
                self.landings.wait(seen, |word, seen| self.sleep(word, seen));
                continue;
            }
            if state.is_dirty {
                let written = Self::hand_out(&mut state);
                drop(state);
                self.land(written);
                continue;
            }
            assert_eq!(state.stored, state.value, "what is taken out is in the store");
            state.is_in = false;
            return;
        }
    }

    /// Takes the entry out whatever it is, as `discard` does.
    fn discard(&self) {
        let mut state = self.state.lock().unwrap();
        if state.is_writing {
            state.writing_bytes -= 1;
        }
        (state.is_in, state.is_dirty) = (false, false);
    }

    fn dirty_again(&self) {
        let mut state = self.state.lock().unwrap();
        if state.is_in {
            state.value += 1;
            state.is_dirty = true;
        }
    }
}

fn model(threads: &'static [fn(&Shared)], flaw: Flaw) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let state = State {
            is_in: true,
            is_dirty: false,
            is_writing: true,
            is_awaited: false,
            writing_bytes: 1,
            value: 1,
            stored: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            landings: Landings::new(),
            queue: Mutex::new(()),
            sleepers: Condvar::new(),
            flaw,
        });
        let others: Vec<_> = threads
            .iter()
            .map(|work| {
                let shared = shared.clone();
                thread::spawn(move || work(&shared))
            })
            .collect();
        shared.land(1);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let state = shared.state.lock().unwrap();
        assert_eq!((state.is_in, state.is_writing, state.writing_bytes), (false, false, 0));
    });
}

#[test]
fn a_removal_wakes_when_its_entry_has_landed() {
    model(&[Shared::remove], Flaw::None);
}

#[test]
fn a_removal_takes_nothing_dirty_out() {
    model(&[Shared::remove, Shared::dirty_again], Flaw::None);
}

#[test]
fn what_leaves_while_it_is_written_is_subtracted_once() {
    model(&[Shared::discard], Flaw::None);
}

#[test]
#[ignore = "must fail: `a_note_taken_too_early_is_noticed` runs it"]
fn early() {
    model(&[Shared::remove], Flaw::EarlyNote);
}

#[test]
fn a_note_taken_too_early_is_noticed() {
    weir_models::must_fail("early", "deadlock");
}

#[test]
#[ignore = "must fail: `a_second_subtraction_is_noticed` runs it"]
fn twice() {
    model(&[Shared::discard], Flaw::Twice);
}

#[test]
fn a_second_subtraction_is_noticed() {
    weir_models::must_fail("twice", "left == right");
}
