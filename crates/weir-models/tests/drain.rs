//! The take-over of a CPU's buckets (`percpu`'s protocol), step by step, against sections on that CPU.
//!
//! A restartable section is modelled as what it does when it is not interrupted: the CPU is held, the table is read
//! once, the bucket is used, and the CPU is let go. The fence waits until the CPU was let go once. Whether a section
//! that read the table before the drain may still be at work is what the checker explores.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

const ABSENT: u8 = 0;
const ACTIVE: u8 = 1;
const STOPPED: u8 = 2;
/// The table's entry for "no buckets".
const DUMMY: usize = 0;
const SLAB: usize = 1;
const ROOM: usize = 2;

/// What is left out, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    Fence,
    Claim,
    Dummy,
}

struct Cpu {
    running: Mutex<()>,
    table: AtomicUsize,
    state: AtomicU8,
    /// The slab has been placed.
    slab: AtomicUsize,
    /// The bucket's objects; the checker reports a race if two use it at once.
    bucket: UnsafeCell<Vec<u32>>,
    omit: Omit,
}

impl Cpu {
    fn new(objects: &[u32], omit: Omit) -> Arc<Self> {
        let installed = !objects.is_empty();
        Arc::new(Self {
            running: Mutex::new(()),
            table: AtomicUsize::new(if installed { SLAB } else { DUMMY }),
            state: AtomicU8::new(if installed { ACTIVE } else { ABSENT }),
            slab: AtomicUsize::new(if installed { SLAB } else { DUMMY }),
            bucket: UnsafeCell::new(objects.to_vec()),
            omit,
        })
    }

    fn section<R>(&self, f: impl FnOnce(&mut Vec<u32>) -> R) -> Option<R> {
        let _running = self.running.lock().unwrap();
        // The CPU's own reads are in order, as dependent loads are.
        if self.table.load(Acquire) == DUMMY {
            return None;
        }
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        Some(self.bucket.with_mut(|bucket| f(unsafe { &mut *bucket })))
    }

    fn pop(&self) -> Option<u32> {
        self.section(Vec::pop).flatten()
    }

    fn push(&self, object: u32) -> bool {
        let push = |bucket: &mut Vec<u32>| {
            let fits = bucket.len() < ROOM;
            if fits {
                bucket.push(object);
            }
            fits
        };
        self.section(push).unwrap_or(false)
    }

    fn install(&self) -> bool {
        if self.state.load(Acquire) != ABSENT {
            return self.state.load(Relaxed) == ACTIVE;
        }
        if self.slab.compare_exchange(DUMMY, SLAB, AcqRel, Acquire).is_err() {
            return false;
        }
        self.table.store(SLAB, Release);
        self.state.store(ACTIVE, Release);
        true
    }

    fn fence(&self) {
        if self.omit != Omit::Fence {
            drop(self.running.lock().unwrap());
        }
    }

    fn drain(&self) -> Vec<u32> {
        let claimed = self.state.compare_exchange(ACTIVE, STOPPED, AcqRel, Relaxed).is_ok();
        if !claimed && self.omit != Omit::Claim {
            return Vec::new();
        }
        if self.omit != Omit::Dummy {
            self.table.store(DUMMY, Release);
        }
        self.fence();
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        let objects = self.bucket.with_mut(|bucket| unsafe { std::mem::take(&mut *bucket) });
        self.table.store(SLAB, Release);
        self.state.store(ACTIVE, Release);
        objects
    }
}

/// Three threads: the interleavings with few switches that nothing forces.
fn bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Every object is in exactly one hand.
fn assert_all(mut hands: Vec<u32>, cpu: &Cpu, expected: &[u32]) {
    hands.extend(cpu.drain());
    hands.sort_unstable();
    assert_eq!(hands, expected);
}

/// A drain against two sections that pop and push.
fn drain_against_sections(omit: Omit) {
    loom::model(move || {
        let cpu = Cpu::new(&[1, 2], omit);
        let drainer = {
            let cpu = cpu.clone();
            thread::spawn(move || cpu.drain())
        };
        let mut hands = Vec::from_iter(cpu.pop());
        if !cpu.push(3) {
            hands.push(3);
        }
        hands.extend(drainer.join().unwrap());
        assert_all(hands, &cpu, &[1, 2, 3]);
    });
}

#[test]
fn a_drain_and_sections_share_no_object() {
    drain_against_sections(Omit::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_fence_they_do() {
    drain_against_sections(Omit::Fence);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_dummy_they_do() {
    drain_against_sections(Omit::Dummy);
}

/// Two threads on one CPU and a drain.
#[test]
fn a_drain_against_two_threads() {
    bounded(|| {
        let cpu = Cpu::new(&[1], Omit::Nothing);
        let popper = {
            let cpu = cpu.clone();
            thread::spawn(move || cpu.pop())
        };
        let pusher = {
            let cpu = cpu.clone();
            thread::spawn(move || (!cpu.push(2)).then_some(2))
        };
        let mut hands = cpu.drain();
        hands.extend(popper.join().unwrap());
        hands.extend(pusher.join().unwrap());
        assert_all(hands, &cpu, &[1, 2]);
    });
}

/// Two threads install the same CPU's buckets while it is drained.
fn install_against_drain(omit: Omit) {
    bounded(move || {
        let cpu = Cpu::new(&[], omit);
        let installer = |object: u32| {
            let cpu = cpu.clone();
            thread::spawn(move || {
                cpu.install();
                (!cpu.push(object)).then_some(object)
            })
        };
        let (first, second) = (installer(1), installer(2));
        let mut hands = cpu.drain();
        hands.extend(first.join().unwrap());
        hands.extend(second.join().unwrap());
        assert_all(hands, &cpu, &[1, 2]);
    });
}

#[test]
fn a_drain_and_installs_lose_no_object() {
    install_against_drain(Omit::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn two_drains_need_the_claim() {
    loom::model(|| {
        let cpu = Cpu::new(&[1], Omit::Claim);
        let other = {
            let cpu = cpu.clone();
            thread::spawn(move || cpu.drain())
        };
        let mut hands = cpu.drain();
        hands.extend(other.join().unwrap());
        assert_all(hands, &cpu, &[1]);
    });
}
