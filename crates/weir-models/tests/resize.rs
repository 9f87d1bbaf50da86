//! A bucket's `end` changes while its CPU's threads pop and push and a drain takes the bucket over (`percpu`, resizing).
//!
//! A restartable section is modelled as in `crates/weir-models/tests/drain.rs`: the CPU is held, the table is read once, the bucket is used.
//! Slots are cells, so that the checker sees two users at once.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

const DUMMY: usize = 0;
const SLAB: usize = 1;
const SLOTS: usize = 3;

/// How `current` and `end` are kept.
#[derive(Clone, Copy, PartialEq)]
enum Words {
    /// A word each.
    Two,
    /// Halves of one, to see that the checker notices.
    One,
}

struct Cpu {
    running: Mutex<()>,
    table: AtomicUsize,
    current: AtomicU32,
    end: AtomicU32,
    /// Both, for [`Words::One`].
    both: AtomicU32,
    slots: [UnsafeCell<u32>; SLOTS],
    words: Words,
}

impl Cpu {
    fn new(objects: &[u32], end: u32, words: Words) -> Arc<Self> {
        let slot = |i: usize| UnsafeCell::new(objects.get(i).copied().unwrap_or(0));
        let current = objects.len() as u32;
        Arc::new(Self {
            running: Mutex::new(()),
            table: AtomicUsize::new(SLAB),
            current: AtomicU32::new(current),
            end: AtomicU32::new(end),
            both: AtomicU32::new(end << 16 | current),
            slots: [slot(0), slot(1), slot(2)],
            words,
        })
    }

    fn header(&self) -> (u32, u32) {
        match self.words {
            Words::Two => (self.current.load(Relaxed), self.end.load(Relaxed)),
            Words::One => {
                let both = self.both.load(Relaxed);
                (both & 0xffff, both >> 16)
            }
        }
    }

    /// The store that commits a pop or a push.
    fn commit(&self, current: u32, end: u32) {
        match self.words {
            Words::Two => self.current.store(current, Relaxed),
            Words::One => self.both.store(end << 16 | current, Relaxed),
        }
    }

    /// Lets the bucket hold `room` objects: by any thread, at any time.
    fn resize(&self, room: u32) {
        match self.words {
            Words::Two => self.end.store(room, Relaxed),
            Words::One => {
                let current = self.both.load(Relaxed) & 0xffff;
                self.both.store(room << 16 | current, Relaxed);
            }
        }
    }

    fn section<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let _running = self.running.lock().unwrap();
        (self.table.load(Acquire) == SLAB).then(f)
    }

    fn pop_slot(&self) -> Option<u32> {
        let (current, end) = self.header();
        let top = current.checked_sub(1)?;
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        let object = self.slots[top as usize].with(|slot| unsafe { *slot });
        self.commit(top, end);
        Some(object)
    }

    fn pop(&self) -> Option<u32> {
        self.section(|| self.pop_slot()).flatten()
    }

    fn push(&self, object: u32) -> bool {
        let push = || {
            let (current, end) = self.header();
            if current >= end {
                return false;
            }
            // SAFETY: as in `pop_slot`.
            self.slots[current as usize].with_mut(|slot| unsafe { *slot = object });
            self.commit(current + 1, end);
            true
        };
        self.section(push).unwrap_or(false)
    }

    /// Takes the bucket over; it may hold `room` objects afterwards.
    fn drain(&self, room: u32) -> Vec<u32> {
        self.table.store(DUMMY, Release);
        drop(self.running.lock().unwrap());
        let objects = std::iter::from_fn(|| self.pop_slot()).collect();
        self.resize(room);
        self.table.store(SLAB, Release);
        objects
    }
}

/// Every object is in exactly one hand.
fn assert_all(mut hands: Vec<u32>, cpu: &Cpu, expected: &[u32]) {
    hands.extend(cpu.drain(0));
    hands.sort_unstable();
    assert_eq!(hands, expected);
}

/// A bucket is cut to `room` by another CPU's thread, and grown again, between a pop and pushes.
fn resize_against_sections(words: Words, room: u32) {
    loom::model(move || {
        let cpu = Cpu::new(&[1], 2, words);
        let tuner = {
            let cpu = cpu.clone();
            thread::spawn(move || {
                cpu.resize(room);
                cpu.resize(3);
            })
        };
        let mut hands = Vec::from_iter(cpu.pop());
        for object in [2, 3, 4] {
            if !cpu.push(object) {
                hands.push(object);
            }
        }
        tuner.join().unwrap();
        assert_all(hands, &cpu, &[1, 2, 3, 4]);
    });
}

#[test]
fn a_resize_loses_no_commit() {
    (0..=1).for_each(|room| resize_against_sections(Words::Two, room));
}

#[test]
#[should_panic]
fn in_one_word_it_does() {
    resize_against_sections(Words::One, 1);
}

/// Refill, free, a shrinking ceiling and a drain, at once.
#[test]
fn a_resize_and_a_drain_agree() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let cpu = Cpu::new(&[1], 1, Words::Two);
        let refill = {
            let cpu = cpu.clone();
            thread::spawn(move || {
                cpu.resize(3);
                (!cpu.push(2)).then_some(2)
            })
        };
        let balancer = {
            let cpu = cpu.clone();
            thread::spawn(move || {
                cpu.resize(0);
                cpu.drain(1)
            })
        };
        let mut hands = Vec::from_iter(cpu.pop());
        hands.extend(refill.join().unwrap());
        hands.extend(balancer.join().unwrap());
        assert!([1, 3].contains(&cpu.end.load(Relaxed)));
        assert_all(hands, &cpu, &[1, 2]);
    });
}
