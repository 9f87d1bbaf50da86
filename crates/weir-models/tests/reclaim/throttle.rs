//! A throttled allocation against a balancer that goes to sleep (`platform/event_count.rs` and `reclaim/request.rs`). The
//! two are their own source, on a model checker's atomics and a futex without a timeout. No allocation waits for a
//! balancer that sleeps.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

use weir_models::sync;

/// As much of the platform as they need.
mod wait {
    pub trait Wait {
        fn wait_for(&self, word: &super::sync::AtomicU32, expected: u32, ns: Option<u64>);
        fn wake_all(&self, word: &super::sync::AtomicU32);
    }
}

#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/platform/event_count.rs"]
mod event_count;
#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/reclaim/request.rs"]
mod request;
#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
use event_count::EventCount;
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use request::{Request, Requests};
use wait::Wait;

/// A futex: the word is looked at and the thread put to sleep in one step, as the kernel does. It has no timeout here, so that
/// a wait that only its timeout would end is a deadlock.
struct Futex {
    queue: Mutex<()>,
    sleepers: Condvar,
}

impl Wait for Futex {
    fn wait_for(&self, word: &sync::AtomicU32, expected: u32, _ns: Option<u64>) {
        let queue = self.queue.lock().unwrap();
        if word.load(SeqCst) == expected {
            drop(self.sleepers.wait(queue).unwrap());
        }
    }

    fn wake_all(&self, _word: &sync::AtomicU32) {
        let _queue = self.queue.lock().unwrap();
        self.sleepers.notify_all();
    }
}

struct Shared {
    futex: Futex,
    requests: Requests,
    throttle: EventCount,
    /// Enough is free.
    is_free: AtomicBool,
    /// The balancer lets waiters go before it is asleep: the flaw.
    is_early: bool,
}

impl Shared {
    fn allocate(&self) {
        self.throttle.wait_unless(&self.futex, Some(1), || !self.requests.is_awake() || self.is_free.load(SeqCst));
    }

    /// Fails, or reclaims enough; then sleeps.
    fn balance(&self, succeeds: bool) {
        self.requests.take();
        if succeeds {
            self.is_free.store(true, SeqCst);
            self.throttle.tell(&self.futex);
        }
        if self.is_early {
            self.throttle.tell(&self.futex);
            self.requests.sleep_regardless();
        } else {
            self.requests.sleep_regardless();
            self.throttle.tell(&self.futex);
        }
    }
}

fn model(waiters: usize, succeeds: bool, is_early: bool) {
    weir_models::check((waiters > 1).then_some(2), move || {
        let futex = Futex { queue: Mutex::new(()), sleepers: Condvar::new() };
        let (requests, throttle) = (Requests::new(), EventCount::new());
        let shared = Arc::new(Shared { futex, requests, throttle, is_free: AtomicBool::new(false), is_early });
        // It was woken.
        shared.requests.add(Request::new(0, 1));
        let threads: Vec<_> = (0..waiters)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || shared.allocate())
            })
            .collect();
        shared.balance(succeeds);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn none_waits_for_a_balancer_that_sleeps() {
    model(1, false, false);
    model(1, true, false);
}

#[test]
fn nor_do_two() {
    model(2, false, false);
}

#[test]
fn waiters_let_go_too_early_are_noticed() {
    weir_models::must_fail("deadlock", || model(1, false, true));
}
