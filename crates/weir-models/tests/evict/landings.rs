//! Values of an evictable cache that are computed once while others wait. The source itself on a model checker's atomics;
//! the kernel's sleep is one that compares and sleeps in one step.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

mod platform {
    pub use weir_models::sync;
}

#[path = "../../../weir-core/src/evict/landings.rs"]
mod landings;

use landings::Landings;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// State that the shard's lock guards.
#[derive(Default)]
struct State {
    has_value: bool,
    is_computing: bool,
    is_awaited: bool,
}

struct Shared {
    state: Mutex<State>,
    landings: Landings,
    queue: Mutex<()>,
    sleepers: Condvar,
    computed: AtomicU32,
    /// The count is read after the lock was given back.
    is_flawed: bool,
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

    /// Gets the value, or computes it; the first computation fails.
    fn get(&self) {
        loop {
            let mut state = self.state.lock().unwrap();
            if state.has_value {
                return;
            }
            if state.is_computing {
                state.is_awaited = true;
                let early = self.landings.seen();
                drop(state);
                let seen = if self.is_flawed { self.landings.seen() } else { early };
                self.landings.wait(seen, |word, seen| self.sleep(word, seen));
                continue;
            }
            state.is_computing = true;
            drop(state);
            let is_first = self.computed.fetch_add(1, Relaxed) == 0;
            let mut state = self.state.lock().unwrap();
            (state.is_computing, state.has_value) = (false, !is_first);
            let is_awaited = std::mem::take(&mut state.is_awaited);
            drop(state);
            if is_awaited {
                self.landings.landed(|_| self.wake_all());
            }
            if is_first {
                return;
            }
        }
    }
}

fn model(is_flawed: bool) {
    weir_models::check(3, move || {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            landings: Landings::new(),
            queue: Mutex::new(()),
            sleepers: Condvar::new(),
            computed: AtomicU32::new(0),
            is_flawed,
        });
        let other = shared.clone();
        let other = thread::spawn(move || other.get());
        shared.get();
        other.join().unwrap();
        // The first failed; the second wanted the value, so it is there.
        assert_eq!((shared.computed.load(Relaxed), shared.state.lock().unwrap().has_value), (2, true));
    });
}

#[test]
fn one_computes_and_the_other_is_woken_also_after_a_failure() {
    model(false);
}

#[test]
fn a_count_read_too_late_is_noticed() {
    weir_models::must_fail("deadlock", || model(true));
}
