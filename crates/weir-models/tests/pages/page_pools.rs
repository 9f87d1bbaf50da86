//! Page pools: a put against a pressure event against the owner against the end of the pool. The window, the sleep of
//! owners and the visits are their own source (`platform/event_count.rs`, `pools/squeeze.rs`,
//! `pools/visits.rs`). They run on a model checker's
//! atomics and a futex without a timeout. The idle runs are a count behind a lock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

#[macro_use]
#[path = "../../../weir-core/src/macros.rs"]
mod macros;

use weir_models::sync;

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/base"]
mod base {
    pub mod time;
}

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
#[path = "../../../weir-core/src/pools/squeeze.rs"]
mod squeeze;
#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/pools/visits.rs"]
mod visits;

use base::time::{Nanos, Time};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::SeqCst;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use squeeze::{Closed, Squeeze};
use visits::{Departures, Visits};
use wait::Wait;

/// A futex: the word is looked at and the thread put to sleep in one step, as the kernel does. A sleep that only its
/// timeout would end is a deadlock here.
struct Futex {
    queue: Mutex<()>,
    sleepers: Condvar,
}

impl Futex {
    fn new() -> Self {
        Self { queue: Mutex::new(()), sleepers: Condvar::new() }
    }
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

/// Change of the protocol, to show that the model sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A put looks at the window before it adds its run.
    LooksFirst,
    /// The owner takes as tended for an event that came while it tended.
    ReadsLast,
    /// A pool ends without waiting for its visitors.
    DoesNotWait,
}

/// The window is open for as long as the model runs, once there was an event.
const NS: u64 = 1000;

struct Shared {
    futex: Futex,
    squeeze: Squeeze,
    closed: Closed,
    idle: Mutex<u32>,
    flaw: Flaw,
}

impl Shared {
    fn new(flaw: Flaw) -> Arc<Self> {
        let (squeeze, closed) = (Squeeze::new(), Closed::new());
        Arc::new(Self { futex: Futex::new(), squeeze, closed, idle: Mutex::new(0), flaw })
    }

    fn is_open(&self) -> bool {
        self.squeeze.is_open(&self.closed, Nanos(NS), || Time(1))
    }

    fn put(&self) {
        let early = self.flaw == Flaw::LooksFirst && self.is_open();
        *self.idle.lock().unwrap() += 1;
        if early || self.flaw != Flaw::LooksFirst && self.is_open() {
            *self.idle.lock().unwrap() = 0;
        }
    }

    fn event(&self) {
        self.squeeze.signal(&self.futex, Time(1));
    }

    /// The owner, until it has tended for `events` events.
    fn own(&self, events: u32) {
        let mut seen = 0;
        while seen != events {
            // As `PoolsOn::wait`, then `PoolsOn::tend`.
            self.squeeze.events.wait(&self.futex, seen, None);
            let before = self.squeeze.events.last();
            if before != seen {
                *self.idle.lock().unwrap() = 0;
            }
            seen = if self.flaw == Flaw::ReadsLast { self.squeeze.events.last() } else { before };
        }
    }
}

/// Puts of two threads, with events and their owner.
fn squeezed(puts: usize, events: u32, flaw: Flaw) {
    weir_models::check(if puts > 1 { 2 } else { 3 }, move || {
        let shared = Shared::new(flaw);
        let mut threads = Vec::new();
        for _ in 0..puts {
            let shared = shared.clone();
            threads.push(thread::spawn(move || shared.put()));
        }
        let owner = shared.clone();
        threads.push(thread::spawn(move || owner.own(events)));
        (0..events).for_each(|_| shared.event());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*shared.idle.lock().unwrap(), 0, "a page stays idle in the window");
    });
}

#[test]
fn no_page_stays_idle_in_a_window_and_no_owner_sleeps_through_one() {
    squeezed(1, 1, Flaw::None);
    squeezed(1, 2, Flaw::None);
}

#[test]
fn nor_with_two_that_put() {
    squeezed(2, 1, Flaw::None);
}

#[test]
fn a_put_that_looks_first_is_noticed() {
    weir_models::must_fail("a page stays idle in the window", || squeezed(1, 1, Flaw::LooksFirst));
}

/// The idle pages are there before the events; no put is there to squeeze in the owner's place.
fn owned(flaw: Flaw) {
    loom::model(move || {
        let shared = Shared::new(flaw);
        let owner = shared.clone();
        let owner = thread::spawn(move || owner.own(2));
        shared.event();
        // It became idle outside of a window that this pool saw, as its `squeeze_ms` was 0 before.
        *shared.idle.lock().unwrap() += 1;
        shared.event();
        owner.join().unwrap();
        assert_eq!(*shared.idle.lock().unwrap(), 0, "the owner has missed an event");
    });
}

#[test]
fn an_owner_tends_for_the_last_event() {
    owned(Flaw::None);
}

#[test]
fn an_owner_that_reads_the_event_last_is_noticed() {
    weir_models::must_fail("the owner has missed an event", || owned(Flaw::ReadsLast));
}

/// A pool in a list of one, and its memory: the checker reports whoever looks at it after it went.
struct Listed {
    futex: Futex,
    is_listed: Mutex<bool>,
    departures: Departures,
    visits: Visits,
    memory: UnsafeCell<u32>,
    flaw: Flaw,
}

impl Listed {
    fn visit(&self) {
        let is_listed = self.is_listed.lock().unwrap();
        if !*is_listed {
            return;
        }
        self.visits.enter();
        drop(is_listed);
        // SAFETY: what the model is to show: a pool that is visited is there.
        assert_eq!(self.memory.with(|memory| unsafe { *memory }), 7, "a visitor of a pool that has gone");
        self.departures.leave(&self.futex, &self.visits);
    }

    fn end(&self) {
        *self.is_listed.lock().unwrap() = false;
        if self.flaw != Flaw::DoesNotWait {
            self.departures.wait_for_none(&self.futex, &self.visits);
        }
        // SAFETY: what the model is to show: no thread visits it any more.
        self.memory.with_mut(|memory| unsafe { *memory = 0 });
    }
}

fn ended(visitors: usize, flaw: Flaw) {
    weir_models::check((visitors > 1).then_some(3), move || {
        let pool = Arc::new(Listed {
            futex: Futex::new(),
            is_listed: Mutex::new(true),
            departures: Departures::new(),
            visits: Visits::new(),
            memory: UnsafeCell::new(7),
            flaw,
        });
        let threads: Vec<_> = (0..visitors)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.visit())
            })
            .collect();
        pool.end();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_pool_ends_after_its_visitors() {
    ended(1, Flaw::None);
    ended(2, Flaw::None);
}

#[test]
fn an_end_that_does_not_wait_is_noticed() {
    weir_models::must_fail("Causality violation", || ended(1, Flaw::DoesNotWait));
}
