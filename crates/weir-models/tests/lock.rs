//! The engine's lock, its own source, on a model checker's atomics: exclusion, no lost wake-up.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

/// Parts that `lock.rs` is made of, here.
mod sync {
    pub use loom::sync::atomic::AtomicU32;
    /// Not the checker's: that one lets the holder go on, and no thread would ever sleep.
    pub fn spin_loop() {}
    /// One look before a thread sleeps: both ways are taken, and there are few of them.
    pub const SPINS: u32 = 1;
    pub(crate) use weir_models::sync::constructor;
}

/// As much of the platform as a lock needs.
mod wait {
    pub trait Wait {
        fn wait(&self, word: &super::sync::AtomicU32, expected: u32);
        fn wake(&self, word: &super::sync::AtomicU32);
        fn held_ranks(&self) -> Option<&std::sync::atomic::AtomicU32>;
        fn lock_turn(&self, _rank: u32, _lock: usize, _is_taken: bool) {}
    }
}

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../weir-core/src/platform/rank.rs"]
mod rank;

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../weir-core/src/platform/lock.rs"]
mod lock;

use lock::Lock;
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::SeqCst;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use wait::Wait;

/// A futex: the word is looked at and the thread put to sleep in one step, as the kernel does.
struct Futex {
    queue: Mutex<()>,
    sleepers: Condvar,
    /// Wake-ups are lost, to see that this is noticed.
    deaf: bool,
}

impl Wait for Futex {
    fn wait(&self, word: &sync::AtomicU32, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(SeqCst) == expected {
            drop(self.sleepers.wait(queue).unwrap());
        }
    }

    fn wake(&self, _word: &sync::AtomicU32) {
        if !self.deaf {
            let _queue = self.queue.lock().unwrap();
            self.sleepers.notify_one();
        }
    }

    fn held_ranks(&self) -> Option<&std::sync::atomic::AtomicU32> {
        None
    }
}

struct Shared {
    futex: Futex,
    /// The checker reports a race on the cell if the lock does not order its users.
    lock: Lock<UnsafeCell<u32>, 2>,
}

fn add_one(shared: &Shared) {
    let cell = shared.lock.lock(&shared.futex);
    // SAFETY: the guard is the only one, if the lock is right.
    cell.with_mut(|value| unsafe { *value += 1 });
}

fn model(threads: usize, deaf: bool) {
    weir_models::check((threads > 2).then_some(2), move || {
        let futex = Futex { queue: Mutex::new(()), sleepers: Condvar::new(), deaf };
        let shared = Arc::new(Shared { futex, lock: Lock::new(UnsafeCell::new(0)) });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || add_one(&shared))
            })
            .collect();
        add_one(&shared);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let cell = shared.lock.try_lock(&shared.futex).expect("the lock is open once nobody holds it");
        // SAFETY: the other threads have ended.
        assert_eq!(cell.with(|value| unsafe { *value }), threads as u32);
    });
}

#[test]
fn two_threads() {
    model(2, false);
}

#[test]
fn three_threads() {
    model(3, false);
}

#[test]
fn a_lost_wake_up_is_noticed() {
    weir_models::must_fail("deadlock", || model(2, true));
}
