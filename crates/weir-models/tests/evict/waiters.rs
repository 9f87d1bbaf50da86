//! Tasks that wait for a value of an evictable cache, and loads that fail. The source itself; all of it runs under the shard's
//! lock, which is the checker's, as are the tasks' threads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

#[path = "../../../weir/src/evictable_cache/load/waiters.rs"]
#[allow(dead_code)]
mod waiters;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::task::{Wake, Waker};
use waiters::Node;

/// State that the shard's lock guards.
#[derive(Default)]
struct State {
    has_value: bool,
    /// The node of the flight.
    flight: Option<usize>,
    /// Computations that ended.
    computed: usize,
}

/// A task's thread sleeps until it is called.
struct Called(Mutex<bool>, Condvar);

impl Wake for Called {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

impl Called {
    fn wait(&self) {
        let mut is_called = self.0.lock().unwrap();
        while !*is_called {
            is_called = self.1.wait(is_called).unwrap();
        }
    }
}

/// What a task does as it is woken.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Look,
    /// It is dropped instead.
    Drop,
    /// It is dropped, and wakes no other: the flaw.
    Vanish,
}

struct Shared {
    state: Mutex<State>,
    /// The computations that fail before one brings a value.
    failures: usize,
}

impl Shared {
    /// Wants the value, as `get_or_load` does.
    fn want(&self, then: Then) {
        // It stays where it is until it left its ring for good.
        let node = Box::new(Node::new());
        let called = std::sync::Arc::new(Called(Mutex::new(false), Condvar::new()));
        loop {
            let mut state = self.state.lock().unwrap();
            if state.has_value {
                break;
            }
            let Some(flight) = state.flight else {
                state.flight = Some(&raw const *node as usize);
                node.lead(0);
                drop(state);
                return self.compute(&node);
            };
            // SAFETY: it is linked, and both stay until they left.
            drop(unsafe { node.join(&*(flight as *const Node), Waker::from(called.clone()), 0) });
            drop(state);
            called.wait();
            *called.0.lock().unwrap() = false;
            if then != Then::Look {
                break;
            }
        }
        let state = self.state.lock().unwrap();
        let next = if then == Then::Vanish { None } else { node.give_up(0) };
        drop(state);
        next.into_iter().for_each(Waker::wake);
        if then == Then::Vanish {
            // Others may have it as their neighbour still.
            Box::leak(node);
        }
    }

    fn compute(&self, node: &Node) {
        let mut state = self.state.lock().unwrap();
        (state.flight, state.computed) = (None, state.computed + 1);
        let is_kept = state.computed > self.failures;
        state.has_value |= is_kept;
        let is_awaited = !node.is_alone();
        drop(state);
        while is_awaited {
            let state = self.state.lock().unwrap();
            let mut wakers = node.take(is_kept, 0);
            drop(state);
            if wakers.is_empty() {
                break;
            }
            wakers.wake();
        }
    }
}

fn model(failures: usize, then: [Then; 3]) {
    weir_models::check(3, move || {
        let shared = Arc::new(Shared { state: Mutex::default(), failures });
        let others = [then[1], then[2]].map(|then| {
            let shared = shared.clone();
            thread::spawn(move || shared.want(then))
        });
        shared.want(then[0]);
        others.into_iter().for_each(|other| other.join().unwrap());
        let state = shared.state.lock().unwrap();
        assert!(state.flight.is_none() && (1..=3).contains(&state.computed));
        assert_eq!(state.has_value, state.computed > failures);
    });
}

#[test]
fn all_end_where_loads_fail() {
    (0..3).for_each(|failures| model(failures, [Then::Look; 3]));
}

#[test]
fn all_end_where_one_is_dropped_as_it_is_woken() {
    (0..3).for_each(|failures| model(failures, [Then::Look, Then::Drop, Then::Look]));
}

#[test]
fn a_woken_task_that_wakes_no_other_is_noticed() {
    weir_models::must_fail("deadlock", || model(1, [Then::Look, Then::Vanish, Then::Look]));
}
