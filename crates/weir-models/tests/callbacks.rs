//! A program's callbacks (`evict/callbacks/mod.rs`, `evict/callbacks/unregistering.rs`): posting, calling, unregistering while one runs,
//! two that unregister each other, and a queue that goes on past one that is late.
//!
//! Mirrored: the list's lock is a mutex, `finished` a futex; a callback's memory is a cell that the checker watches, which
//! running reads and disposing writes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What is left out, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// Unregistering does not wait.
    Wait,
    /// A wait that closes a circle is waited.
    Circle,
    /// The end of a run raises `finished` before it clears `RUNNING`.
    Order,
    /// A late callback that returns takes the queue from the one that is called now.
    Current,
}

/// One entry; its number is its place.
#[derive(Default)]
struct Entry {
    is_listed: bool,
    is_wanted: bool,
    is_late: bool,
    is_gone: bool,
}

/// What the list's lock guards.
struct List {
    entries: [Entry; 2],
    /// The entry that the queue is at.
    current: Option<usize>,
    /// By the entry that a thread is in: the entry that the thread waits for.
    waits: [Option<usize>; 2],
}

struct Registry {
    list: Mutex<List>,
    running: [AtomicBool; 2],
    finished: AtomicU32,
    futex: Mutex<()>,
    sleepers: Condvar,
    memory: [UnsafeCell<u32>; 2],
    omit: Omit,
}

impl Registry {
    fn new(omit: Omit) -> Arc<Self> {
        let listed = || Entry { is_listed: true, is_wanted: true, ..Entry::default() };
        Arc::new(Self {
            list: Mutex::new(List { entries: [listed(), listed()], current: None, waits: [None; 2] }),
            running: [AtomicBool::new(false), AtomicBool::new(false)],
            finished: AtomicU32::new(0),
            futex: Mutex::new(()),
            sleepers: Condvar::new(),
            memory: [UnsafeCell::new(1), UnsafeCell::new(1)],
            omit,
        })
    }

    fn raise_finished(&self) {
        self.finished.fetch_add(1, SeqCst);
        let _futex = self.futex.lock().unwrap();
        self.sleepers.notify_all();
    }

    /// Takes the next of entries `0..count` that is wanted, if the queue is at none, or at one that is late.
    fn take(&self, count: usize) -> Option<usize> {
        let mut list = self.list.lock().unwrap();
        if list.current.is_some_and(|current| !list.entries[current].is_late) {
            return None;
        }
        let ready = |&i: &usize| {
            let entry = &list.entries[i];
            entry.is_listed && entry.is_wanted && !self.running[i].load(SeqCst)
        };
        let next = (0..count).find(ready)?;
        list.entries[next].is_wanted = false;
        list.entries[next].is_late = false;
        list.current = Some(next);
        self.running[next].store(true, SeqCst);
        Some(next)
    }

    fn end(&self, entry: usize) {
        let mut list = self.list.lock().unwrap();
        if list.current == Some(entry) || self.omit == Omit::Current {
            list.current = None;
        }
        let gone = list.entries[entry].is_gone;
        list.entries[entry].is_late = false;
        if self.omit == Omit::Order {
            self.raise_finished();
        }
        self.running[entry].store(false, Release);
        drop(list);
        if self.omit != Omit::Order {
            self.raise_finished();
        }
        if gone {
            self.dispose(entry);
        }
    }

    fn call(&self, entry: usize) {
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        self.memory[entry].with(|memory| assert_eq!(unsafe { *memory }, 1, "it was disposed of"));
    }

    fn dispose(&self, entry: usize) {
        // SAFETY: as above.
        self.memory[entry].with_mut(|memory| unsafe { *memory = 0 });
    }

    /// `inside`: the entry that the calling thread is in.
    fn unregister(&self, entry: usize, inside: Option<usize>) {
        let mut list = self.list.lock().unwrap();
        list.entries[entry].is_listed = false;
        let leads_here = inside.is_some_and(|me| entry == me || list.waits[entry] == Some(me));
        if leads_here && self.running[entry].load(SeqCst) && (inside == Some(entry) || self.omit != Omit::Circle) {
            list.entries[entry].is_gone = true;
            return;
        }
        if let Some(me) = inside {
            list.waits[me] = Some(entry);
        }
        drop(list);
        loop {
            let seen = self.finished.load(SeqCst);
            if !self.running[entry].load(Acquire) || self.omit == Omit::Wait {
                break;
            }
            let futex = self.futex.lock().unwrap();
            if self.finished.load(SeqCst) == seen {
                drop(self.sleepers.wait(futex).unwrap());
            }
        }
        if let Some(me) = inside {
            self.list.lock().unwrap().waits[me] = None;
        }
        self.dispose(entry);
    }

    /// Reclaim has waited for long enough, whenever that is: what runs is late.
    fn give_up(&self, entry: usize) {
        let mut list = self.list.lock().unwrap();
        if self.running[entry].load(SeqCst) {
            list.entries[entry].is_late = true;
        }
    }
}

fn run_against_unregister(omit: Omit) {
    loom::model(move || {
        let registry = Registry::new(omit);
        let server = {
            let registry = registry.clone();
            thread::spawn(move || {
                if let Some(entry) = registry.take(1) {
                    registry.call(entry);
                    registry.end(entry);
                }
            })
        };
        registry.unregister(0, None);
        server.join().unwrap();
    });
}

#[test]
fn none_is_called_after_it_was_unregistered() {
    run_against_unregister(Omit::Nothing);
}

#[test]
#[should_panic]
fn without_the_wait_one_is() {
    run_against_unregister(Omit::Wait);
}

#[test]
#[ignore = "fails, as it is to: see the test below"]
fn flaw_finished_is_raised_early() {
    run_against_unregister(Omit::Order);
}

#[test]
fn raised_before_the_run_has_ended_it_is_slept_through() {
    weir_models::must_fail("flaw_finished_is_raised_early", "deadlock");
}

#[test]
fn one_that_unregisters_itself_is_disposed_of_once_after_its_return() {
    loom::model(|| {
        let registry = Registry::new(Omit::Nothing);
        let servers: Vec<_> = (0..2)
            .map(|_| {
                let registry = registry.clone();
                thread::spawn(move || {
                    let Some(entry) = registry.take(1) else { return 0 };
                    registry.unregister(entry, Some(entry));
                    registry.call(entry);
                    registry.end(entry);
                    1
                })
            })
            .collect();
        assert_eq!(servers.into_iter().map(|server| server.join().unwrap()).sum::<u32>(), 1);
    });
}

fn each_unregisters_the_other(omit: Omit) {
    loom::model(move || {
        let registry = Registry::new(omit);
        // As two queues took them.
        registry.running.iter().for_each(|running| running.store(true, SeqCst));
        let run = |registry: &Registry, me: usize| {
            registry.call(me);
            registry.unregister(1 - me, Some(me));
            registry.end(me);
        };
        let other = {
            let registry = registry.clone();
            thread::spawn(move || run(&registry, 1))
        };
        run(&registry, 0);
        other.join().unwrap();
        // SAFETY: both threads have ended.
        registry.memory.iter().for_each(|memory| memory.with(|memory| assert_eq!(unsafe { *memory }, 0, "kept")));
    });
}

#[test]
fn two_that_unregister_each_other_both_end() {
    each_unregisters_the_other(Omit::Nothing);
}

#[test]
#[ignore = "fails, as it is to: see the test below"]
fn flaw_a_circle_is_waited_for() {
    each_unregisters_the_other(Omit::Circle);
}

#[test]
fn without_the_look_for_a_circle_they_wait_for_each_other() {
    weir_models::must_fail("flaw_a_circle_is_waited_for", "deadlock");
}

fn a_late_one_returns(omit: Omit) {
    loom::model(move || {
        let registry = Registry::new(omit);
        let first = registry.take(2).unwrap();
        registry.give_up(first);
        let standby = {
            let registry = registry.clone();
            thread::spawn(move || {
                let second = registry.take(2).expect("the queue goes on");
                assert_ne!(second, 0, "the late one is not called again");
                registry.call(second);
                // While it is called, and is not late, the queue is at it: no third thread calls another one.
                assert_eq!(registry.list.lock().unwrap().current, Some(second), "two at once");
                registry.end(second);
            })
        };
        registry.call(first);
        registry.end(first);
        standby.join().unwrap();
        assert_eq!(registry.list.lock().unwrap().current, None);
    });
}

#[test]
fn a_late_one_that_returns_leaves_the_queue_to_the_next() {
    a_late_one_returns(Omit::Nothing);
}

#[test]
#[should_panic(expected = "two at once")]
fn without_the_look_it_takes_the_queue() {
    a_late_one_returns(Omit::Current);
}
