//! Changes of the process as a whole beside starts of its background thread (`threads/changes.rs`, its own source). No
//! thread is there during a change, each sees what was before it, and there is one again after the last.
//!
//! Mirrored from `threads/background/mod.rs`: `start`, and what `wait_for_calm`, the loop and `end` do to the state and the
//! changes; from `threads/background/suspension.rs`: `start_again` and `end_before`.
#![cfg(loom)]

use std::sync::atomic::{AtomicU32 as Plain, Ordering::Relaxed};

/// Atomics that `changes.rs` is made of, here. The checker takes `SeqCst` for less than it is: a fence at each access
/// makes it that.
mod sync {
    use loom::sync::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};

    fn order() {
        loom::sync::atomic::fence(SeqCst);
    }

    #[derive(Debug, Default)]
    pub struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub fn new(value: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(value))
        }

        pub fn load(&self, _: Ordering) -> u32 {
            order();
            self.0.load(Acquire)
        }

        pub fn store(&self, value: u32, _: Ordering) {
            self.0.store(value, Release);
            order();
        }

        pub fn fetch_add(&self, value: u32, _: Ordering) -> u32 {
            order();
            let before = self.0.fetch_add(value, AcqRel);
            order();
            before
        }

        pub fn swap(&self, value: u32, _: Ordering) -> u32 {
            order();
            let before = self.0.swap(value, AcqRel);
            order();
            before
        }

        pub fn compare_exchange(&self, old: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
            order();
            let result = self.0.compare_exchange(old, new, AcqRel, Acquire);
            order();
            result
        }

        pub fn fetch_update(
            &self,
            _: Ordering,
            _: Ordering,
            mut f: impl FnMut(u32) -> Option<u32>,
        ) -> Result<u32, u32> {
            let mut old = self.load(SeqCst);
            while let Some(new) = f(old) {
                match self.compare_exchange(old, new, SeqCst, SeqCst) {
                    Ok(_) => return Ok(old),
                    Err(now) => old = now,
                }
            }
            Err(old)
        }
    }

    macro_rules! shared {
        ($($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
            loom::lazy_static! { $($(#[$meta])* static ref $name: $type = $value;)* }
        };
    }
    pub(crate) use shared;

    pub(crate) use weir_models::sync::constructor;
}

mod os {
    pub(crate) use super::sync;
    pub mod clock {
        /// No time passes: the thread always ends in time.
        pub fn monotonic_ns() -> u64 {
            0
        }
    }
}

/// As much of the background thread as there is to it here.
mod background {
    use super::sync::{AtomicU32, shared};
    use super::{FLAW, HELD_FIRST, NOTED_LATE, Relaxed, UNORDERED};
    use crate::changes::{Changes, Suspend};
    use loom::sync::atomic::Ordering::{Acquire, Release, SeqCst};
    use loom::sync::{Condvar, Mutex};
    use loom::thread::{self, JoinHandle};
    use std::sync::atomic::AtomicBool;

    const ABSENT: u32 = 0;
    const STARTING: u32 = 1;
    const RUNNING: u32 = 2;

    shared! {
        static STATE: AtomicU32 = AtomicU32::new(ABSENT);
        /// A word that the kernel sets and clears: 1 while the thread is there.
        static ALIVE: AtomicU32 = AtomicU32::new(0);
    }

    loom::lazy_static! {
        /// Whether there is a wake-up.
        static ref NEWS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
        /// Woken where the kernel clears `ALIVE`.
        static ref GONE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
        /// The model's end: no thread is started any more.
        static ref IS_OVER: AtomicBool = AtomicBool::new(false);
        pub static ref CHANGES: Changes = Changes::new();
        static ref THREADS: std::sync::Mutex<Vec<JoinHandle<()>>> = std::sync::Mutex::new(Vec::new());
    }

    /// Whether the thread is there, whatever the caller may read.
    pub fn is_there() -> bool {
        ALIVE.fetch_add(0, SeqCst) != 0
    }

    pub fn start() {
        if IS_OVER.load(Relaxed) || ALIVE.load(Acquire) != 0 {
            return;
        }
        let (changes_before, held_before) = (CHANGES.count(), CHANGES.are_under_way());
        if STATE.compare_exchange(ABSENT, STARTING, SeqCst, Acquire).is_err() {
            return;
        }
        let changes = CHANGES.count();
        let (changes, is_held) = match FLAW.load(Relaxed) {
            UNORDERED => (changes_before, held_before),
            HELD_FIRST => {
                let is_held = CHANGES.are_under_way();
                (CHANGES.count(), is_held)
            }
            _ => (changes, CHANGES.are_under_way()),
        };
        if is_held {
            CHANGES.owe();
            return STATE.store(ABSENT, SeqCst);
        }
        ALIVE.store(1, SeqCst);
        let thread = thread::spawn(move || run(changes));
        THREADS.lock().unwrap().push(thread);
    }

    pub struct Thread;

    impl Suspend for Thread {
        fn is_of_this_process(&self) -> bool {
            true
        }

        fn start_again(&self) {
            if STATE.load(SeqCst) == ABSENT {
                start();
            }
        }

        fn end_before(&self, _deadline: u64) {
            end();
        }
    }

    fn end() {
        let mut state = STATE.load(SeqCst);
        if FLAW.load(Relaxed) == NOTED_LATE && state != ABSENT {
            CHANGES.owe();
        }
        while state == STARTING {
            thread::yield_now();
            state = STATE.load(SeqCst);
        }
        if state == RUNNING {
            wake();
        }
        let mut guard = GONE.0.lock().unwrap();
        while ALIVE.load(SeqCst) != 0 {
            guard = GONE.1.wait(guard).unwrap();
        }
    }

    fn wake() {
        *NEWS.0.lock().unwrap() = true;
        NEWS.1.notify_one();
    }

    fn run(changes: u32) {
        STATE.store(RUNNING, SeqCst);
        loop {
            *NEWS.0.lock().unwrap() = false;
            if CHANGES.count() != changes {
                if FLAW.load(Relaxed) != NOTED_LATE {
                    CHANGES.owe();
                }
                break;
            }
            let mut news = NEWS.0.lock().unwrap();
            while !*news {
                news = NEWS.1.wait(news).unwrap();
            }
        }
        *NEWS.0.lock().unwrap() = false;
        STATE.store(ABSENT, Release);
        let _guard = GONE.0.lock().unwrap();
        ALIVE.store(0, SeqCst);
        GONE.1.notify_all();
    }

    /// Ends the thread that is there, and waits for all.
    pub fn finish() {
        IS_OVER.store(true, Relaxed);
        CHANGES.without_thread(&Thread, || ());
        THREADS.lock().unwrap().drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-linux/src/threads/changes.rs"]
mod changes;

use background::{CHANGES, Thread};
use loom::thread;

/// The flaws, of which a process has one.
static FLAW: Plain = Plain::new(0);
/// The thread that starts it has read what changes before others see that it starts one.
const UNORDERED: u32 = 1;
/// The thread that starts the other looks whether a change is under way before it reads the count of changes.
const HELD_FIRST: u32 = 2;
/// Not the thread that ends because of a change notes that, but the changer, if it finds the thread.
const NOTED_LATE: u32 = 3;

/// A change during which no thread may be there.
fn change() {
    CHANGES.without_thread(&Thread, || {
        assert!(!background::is_there(), "a thread is there during a change");
        thread::yield_now();
        assert!(!background::is_there(), "a thread is there during a change");
    });
}

/// `first` beside `other`, after `before`.
fn model(before: fn(), first: fn(), other: fn(), is_there_after: bool) {
    let mut builder = loom::model::Builder::new();
    // Those with few switches that nothing forces.
    builder.preemption_bound = Some(2);
    // Of two changes, each of which starts a thread, the first of very many interleavings.
    builder.max_permutations = is_there_after.then_some(20_000);
    builder.max_branches = 10_000;
    builder.check(move || {
        before();
        let other = thread::spawn(other);
        first();
        other.join().unwrap();
        assert!(!is_there_after || background::is_there(), "there is no thread after the last change");
        background::finish();
    });
}

/// A change that has ended when the thread is told of it.
fn changed() {
    CHANGES.without_thread(&Thread, || ());
}

fn a_start_and_a_change() {
    model(|| {}, background::start, change, false);
}

fn one_change() {
    model(background::start, || {}, changed, true);
}

#[test]
fn after_a_change_there_is_a_thread() {
    one_change();
}

#[test]
fn no_thread_is_there_during_a_change() {
    a_start_and_a_change();
}

#[test]
fn after_two_changes_there_is_a_thread() {
    model(background::start, change, change, true);
    model(background::start, change, changed, true);
}

#[test]
fn flaws_are_noticed() {
    weir_models::must_fail("there is no thread after the last change", || {
        FLAW.store(NOTED_LATE, Relaxed);
        one_change();
    });
    weir_models::must_fail("deadlock", || {
        FLAW.store(HELD_FIRST, Relaxed);
        a_start_and_a_change();
    });
    weir_models::must_fail("a thread is there during a change", || {
        FLAW.store(UNORDERED, Relaxed);
        a_start_and_a_change();
    });
}
