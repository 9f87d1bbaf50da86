//! Requests to the node balancer against its sleep (`reclaim/request.rs`), its own source, on a model checker's
//! atomics. No request is slept on, requests merge, and each is taken once.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

use weir_models::sync;

#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/reclaim/request.rs"]
mod request;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use request::{Request, Requests};

struct Shared {
    requests: Requests,
    /// The thread's own waker: a wake-up that comes before the sleep is not lost.
    woken: (Mutex<bool>, Condvar),
    /// The balancer decides to sleep by a look, not by the word: the flaw.
    is_flawed: bool,
}

impl Shared {
    fn ask(&self, order: u32, highest: usize) {
        if self.requests.add(Request::new(order, highest)) {
            *self.woken.0.lock().unwrap() = true;
            self.woken.1.notify_one();
        }
    }

    /// The balancer, until it has seen `wanted`.
    fn balance(&self, wanted: Request) {
        let mut seen = Request::NONE;
        loop {
            seen = seen.merged(self.requests.take());
            if seen == wanted {
                return;
            }
            let sleeps = if self.is_flawed {
                let sleeps = !self.requests.is_pending();
                self.requests.sleep_regardless();
                sleeps
            } else {
                self.requests.sleep()
            };
            if sleeps {
                let mut woken = self.woken.0.lock().unwrap();
                while !*woken {
                    woken = self.woken.1.wait(woken).unwrap();
                }
                *woken = false;
            }
        }
    }
}

fn model(is_flawed: bool) {
    weir_models::check(2, move || {
        let shared =
            Arc::new(Shared { requests: Requests::new(), woken: (Mutex::new(false), Condvar::new()), is_flawed });
        let askers = [(3, 1), (9, 1)].map(|(order, highest)| {
            let shared = shared.clone();
            thread::spawn(move || shared.ask(order, highest))
        });
        shared.balance(Request::new(9, 1));
        askers.into_iter().for_each(|thread| thread.join().unwrap());
        // The smaller one may have come after: it is there, and nothing else is.
        let left = shared.requests.take();
        assert!(left.is_none() || left == Request::new(3, 1));
    });
}

#[test]
fn no_request_is_slept_on() {
    model(false);
}

#[test]
fn a_sleep_that_does_not_look_at_the_word_is_noticed() {
    weir_models::must_fail("deadlock", || model(true));
}

/// Two highest zones: what is merged is what was asked for, neither more nor less.
#[test]
fn requests_for_two_zones_do_not_mix() {
    loom::model(|| {
        let requests = Arc::new(Requests::new());
        let other = requests.clone();
        let asker = thread::spawn(move || other.add(Request::new(0, 2)));
        requests.add(Request::new(5, 1));
        let first = requests.take();
        asker.join().unwrap();
        let all = first.merged(requests.take());
        assert_eq!(all, Request::new(5, 1).merged(Request::new(0, 2)));
        assert_eq!((all.order(1), all.order(2)), (Some(5), Some(0)));
    });
}
