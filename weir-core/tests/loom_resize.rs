//! A bucket's `end` changes while its CPU's threads pop and push and a drain takes the bucket over (`percpu`, resizing).
//!
//! A restartable section is modelled as in `loom_drain`: the CPU is held, the table is read once, the bucket is used.
//! The header is one word, as it is there; slots are cells, so that the checker sees two users at once.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

const DUMMY: usize = 0;
const SLAB: usize = 1;
const SLOTS: usize = 3;

/// What is left out, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// A resize stores its word from wherever it runs.
    Section,
    /// A resize does not compare the word with what it saw.
    Compare,
    /// A bucket is cut below what it holds.
    Held,
}

struct Cpu {
    running: Mutex<()>,
    table: AtomicUsize,
    header: AtomicU32,
    slots: [UnsafeCell<u32>; SLOTS],
    omit: Omit,
}

fn word(current: u32, end: u32) -> u32 {
    end << 16 | current
}

impl Cpu {
    fn new(objects: &[u32], end: u32, omit: Omit) -> Arc<Self> {
        let slot = |i: usize| UnsafeCell::new(objects.get(i).copied().unwrap_or(0));
        Arc::new(Self {
            running: Mutex::new(()),
            table: AtomicUsize::new(SLAB),
            header: AtomicU32::new(word(objects.len() as u32, end)),
            slots: [slot(0), slot(1), slot(2)],
            omit,
        })
    }

    fn section<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let _running = self.running.lock().unwrap();
        (self.table.load(Acquire) == SLAB).then(f)
    }

    fn pop_slot(&self) -> Option<u32> {
        let header = self.header.load(Relaxed);
        let current = header & 0xffff;
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        let object = current.checked_sub(1).map(|at| self.slots[at as usize].with(|slot| unsafe { *slot }))?;
        self.header.store(header - 1, Relaxed);
        Some(object)
    }

    fn pop(&self) -> Option<u32> {
        self.section(|| self.pop_slot()).flatten()
    }

    fn push(&self, object: u32) -> bool {
        let push = || {
            let header = self.header.load(Relaxed);
            let (current, end) = (header & 0xffff, header >> 16);
            assert!(current <= end && end as usize <= SLOTS, "{current} of {end}");
            if current == end {
                return false;
            }
            // SAFETY: as in `pop_slot`.
            self.slots[current as usize].with_mut(|slot| unsafe { *slot = object });
            self.header.store(header + 1, Relaxed);
            true
        };
        self.section(push).unwrap_or(false)
    }

    /// Lets the bucket hold `end` objects, if it holds no more.
    fn resize(&self, end: u32) {
        let seen = self.header.load(Relaxed);
        let current = seen & 0xffff;
        if current > end && self.omit != Omit::Held {
            return;
        }
        let exchange = || {
            if self.omit == Omit::Compare || self.header.load(Relaxed) == seen {
                self.header.store(word(current, end), Relaxed);
            }
        };
        if self.omit == Omit::Section { exchange() } else { self.section(exchange).unwrap_or(()) }
    }

    /// Takes the bucket over; it may hold `end` objects afterwards.
    fn drain(&self, end: u32) -> Vec<u32> {
        self.table.store(DUMMY, Release);
        drop(self.running.lock().unwrap());
        let objects = std::iter::from_fn(|| self.pop_slot()).collect();
        self.header.store(word(0, end), Relaxed);
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

/// A resize against a pop and a push on the same CPU.
fn resize_against_sections(omit: Omit) {
    loom::model(move || {
        let cpu = Cpu::new(&[1], 2, omit);
        let tuner = {
            let cpu = cpu.clone();
            thread::spawn(move || cpu.resize(1))
        };
        let mut hands = Vec::from_iter(cpu.pop());
        for object in [2, 3] {
            if !cpu.push(object) {
                hands.push(object);
            }
        }
        tuner.join().unwrap();
        assert_all(hands, &cpu, &[1, 2, 3]);
    });
}

#[test]
fn a_resize_loses_no_commit() {
    resize_against_sections(Omit::Nothing);
}

#[test]
#[should_panic]
fn without_the_section_it_does() {
    resize_against_sections(Omit::Section);
}

#[test]
#[should_panic]
fn without_the_comparison_it_does() {
    resize_against_sections(Omit::Compare);
}

#[test]
#[should_panic(expected = "of 1")]
fn a_bucket_is_not_cut_below_what_it_holds() {
    loom::model(|| {
        let cpu = Cpu::new(&[1, 2], 2, Omit::Held);
        cpu.resize(1);
        cpu.push(3);
    });
}

/// A refill that grows the bucket, a drain that shrinks it, and a free.
#[test]
fn a_resize_and_a_drain_agree() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let cpu = Cpu::new(&[1], 1, Omit::Nothing);
        let refill = {
            let cpu = cpu.clone();
            thread::spawn(move || {
                cpu.resize(3);
                (!cpu.push(2)).then_some(2)
            })
        };
        let drainer = {
            let cpu = cpu.clone();
            thread::spawn(move || cpu.drain(1))
        };
        let mut hands = Vec::from_iter(cpu.pop());
        hands.extend(refill.join().unwrap());
        hands.extend(drainer.join().unwrap());
        let header = cpu.header.load(Relaxed);
        assert!(header & 0xffff <= header >> 16);
        assert_all(hands, &cpu, &[1, 2]);
    });
}
