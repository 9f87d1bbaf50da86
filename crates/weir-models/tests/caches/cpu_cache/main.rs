//! The per-CPU buckets: sections that pop and push, against drains, installs and resizes. The protocol is its own source
//! (`caches/cpu/buckets.rs` and its folder), on one CPU with one class of objects and one of runs.
//!
//! A restartable section is modelled as what it does when it is not interrupted. The CPU is held, the table is read once, the
//! bucket is used, and the CPU is let go. The fence waits until the CPU was let go once. Whether a section that read the table
//! before the drain may still be at work is what the checker explores. Slots are cells, so that it sees two users at once.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

#[macro_use]
#[path = "../../../../weir-core/src/macros.rs"]
mod macros;

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../../weir-core/src/base"]
mod base {
    pub mod backoff;
    pub mod class_set;
    pub mod fault;
    pub mod run;
    pub mod units;

    /// One run class, behind the class of objects.
    pub mod run_class {
        use super::units::{Class, PAGE};

        pub const RUN_CLASSES: usize = 1;
        pub const FIRST: Class = Class(2);
        pub const MAX_CLASS_RUN: usize = PAGE;

        pub const fn nth(_i: usize) -> Class {
            FIRST
        }

        pub const fn place(_class: Class) -> usize {
            0
        }

        pub fn all() -> impl Iterator<Item = Class> {
            core::iter::once(FIRST)
        }

        pub fn contains(class: Class) -> bool {
            class == FIRST
        }

        pub fn serves(class: Class, wanted: Class) -> bool {
            class == wanted
        }

        pub const fn size_of_class(_class: Class) -> usize {
            PAGE
        }

        pub fn class_of_run(size: usize) -> Option<Class> {
            (size == PAGE).then_some(FIRST)
        }
    }
}

mod cpu_table;

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../../weir-core/src/platform"]
mod platform {
    pub mod rank;
    pub(crate) use crate::cpu_table;
    pub use weir_models::{lock, sync};

    /// As much of the platform as buckets need.
    pub trait Platform {
        fn cpu(&self) -> usize;
        fn lockless(&self) -> bool;
        fn checks_all(&self) -> bool;
        fn fence(&self) -> bool;
        fn map_metadata(&self, len: usize, align: crate::base::units::Order) -> Result<usize, ()>;
        fn release_metadata(&self, runs: &[crate::base::run::Run]);
        fn release_unit(&self) -> usize;
        fn unmap(&self, run: crate::base::run::Run);
    }
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../../weir-core/src/caches"]
mod caches {
    pub mod cpu {
        pub mod buckets;
    }

    pub mod geometry {
        use crate::base::units::Class;

        pub const BUCKETED: usize = 3;

        pub const fn class_of_number(number: usize) -> Class {
            Class(number as u8)
        }

        pub const fn slots(_class: Class) -> usize {
            3
        }
    }
}

use base::class_set::ClassSet;
use base::run::Run;
use base::units::{Class, Pages};
use caches::cpu::buckets::PerCpu;
use caches::cpu::buckets::rooms::Budget;
use loom::sync::atomic::Ordering::Acquire;
use loom::sync::{Arc, Mutex};
use loom::thread;
use platform::cpu_table::{CpuSlab, dummy, set_flaw};
use platform::{Platform, lock, rank};

/// The class of objects, and the one of runs.
const OBJECTS: Class = Class(1);
const RUNS: Class = Class(2);

/// Flaw that a model is run with.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The fence waits for nobody.
    NoFence,
    /// The table goes on to show the slab.
    NoDummy,
    /// Two drains at a time.
    TwoDrains,
    /// `current` and `end` are halves of one word.
    OneWord,
    /// A room is read and stored, and not exchanged.
    NoExchange,
}

/// One CPU: held by the section that runs on it.
struct Cpu {
    running: Mutex<()>,
    slabs: std::sync::Mutex<Vec<*mut CpuSlab>>,
    flaw: Flaw,
}

impl Platform for Cpu {
    fn cpu(&self) -> usize {
        0
    }

    fn lockless(&self) -> bool {
        true
    }

    fn checks_all(&self) -> bool {
        false
    }

    fn fence(&self) -> bool {
        if self.flaw != Flaw::NoFence {
            drop(self.running.lock().unwrap());
        }
        true
    }

    fn map_metadata(&self, _len: usize, _align: base::units::Order) -> Result<usize, ()> {
        let slab = Box::into_raw(Box::new(CpuSlab::new()));
        self.slabs.lock().unwrap().push(slab);
        Ok(slab as usize)
    }

    fn release_metadata(&self, _runs: &[Run]) {}

    fn release_unit(&self) -> usize {
        base::units::PAGE
    }

    // With the others, at the end.
    fn unmap(&self, _run: Run) {}
}

struct World {
    buckets: PerCpu,
    cpu: Cpu,
}

// SAFETY: the slabs that the pointers lead to live as long as the world, and are of the checker's atomics and cells.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl Drop for World {
    fn drop(&mut self) {
        for slab in self.cpu.slabs.get_mut().unwrap().drain(..) {
            // SAFETY: made by `map_metadata`, and used by nobody any more.
            drop(unsafe { Box::from_raw(slab) });
        }
    }
}

impl World {
    /// A CPU without buckets.
    fn new(flaw: Flaw) -> Arc<Self> {
        let cpu = Cpu { running: Mutex::new(()), slabs: std::sync::Mutex::default(), flaw };
        Arc::new(Self { buckets: PerCpu::new(), cpu })
    }

    /// One whose bucket holds `objects`, and has room for `room`.
    fn with(objects: &[usize], room: usize, flaw: Flaw) -> Arc<Self> {
        let world = Self::new(flaw);
        assert!(world.buckets.install(&world.cpu));
        world.buckets.resize(&world.cpu, OBJECTS, room);
        objects.iter().for_each(|&object| assert!(world.push(OBJECTS, object)));
        world
    }

    fn section<R>(&self, f: impl FnOnce(*mut CpuSlab) -> R) -> Option<R> {
        let _running = self.cpu.running.lock().unwrap();
        // The CPU's own reads are in order, as dependent loads are.
        let slab = self.buckets.table.entry(0).load(Acquire);
        (slab != dummy()).then(|| f(slab))
    }

    fn pop(&self) -> Option<usize> {
        // SAFETY: the table's slab is there until the world's end.
        let object = self.section(|slab| unsafe { CpuSlab::pop(slab, OBJECTS) })?;
        (!object.is_null()).then_some(object as usize)
    }

    fn push(&self, class: Class, object: usize) -> bool {
        // SAFETY: as in `pop`.
        self.section(|slab| unsafe { CpuSlab::push(slab, class, object as *mut u8) }).unwrap_or(false)
    }

    /// Pushes an object; it is returned if it does not fit.
    fn free(&self, object: usize) -> Option<usize> {
        (!self.push(OBJECTS, object)).then_some(object)
    }

    /// Takes all over; the bucket of objects may hold `room` of them afterwards, and that of runs none.
    fn drain(&self, room: usize) -> Vec<usize> {
        let (set, mut found) = (ClassSet::from_iter([OBJECTS, RUNS]), Vec::new());
        let room = |class: Class| if class == OBJECTS { room } else { 0 };
        self.buckets.drain(&self.cpu, set, OBJECTS, room, false, |_, object| found.push(object as usize));
        found
    }

    /// Every object is in exactly one hand.
    fn assert_all(&self, mut hands: Vec<usize>, expected: &[usize]) {
        hands.extend(self.drain(0));
        hands.sort_unstable();
        assert_eq!(hands, expected);
    }
}

/// The interleavings with few switches that nothing forces.
fn check(flaw: Flaw, most: usize, model: impl Fn() + Send + Sync + 'static) {
    set_flaw(flaw);
    lock::leave_open((flaw == Flaw::TwoDrains).then_some(rank::DRAIN));
    weir_models::check(most, model);
}

/// A drain against two sections that pop and push.
fn drain_against_sections(flaw: Flaw) {
    check(flaw, 3, move || {
        let world = World::with(&[1, 2], 2, flaw);
        let drainer = {
            let world = world.clone();
            thread::spawn(move || world.drain(2))
        };
        let mut hands = Vec::from_iter(world.pop());
        hands.extend(world.free(3));
        hands.extend(drainer.join().unwrap());
        world.assert_all(hands, &[1, 2, 3]);
    });
}

#[test]
fn a_drain_and_sections_share_no_object() {
    drain_against_sections(Flaw::None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_fence_they_do() {
    drain_against_sections(Flaw::NoFence);
}

#[test]
#[should_panic]
fn without_the_dummy_they_do() {
    drain_against_sections(Flaw::NoDummy);
}

/// Two threads on one CPU and a drain.
#[test]
fn a_drain_against_two_threads() {
    check(Flaw::None, 2, || {
        let world = World::with(&[1], 2, Flaw::None);
        let popper = {
            let world = world.clone();
            thread::spawn(move || world.pop())
        };
        let pusher = {
            let world = world.clone();
            thread::spawn(move || world.free(2))
        };
        let mut hands = world.drain(2);
        hands.extend(popper.join().unwrap());
        hands.extend(pusher.join().unwrap());
        world.assert_all(hands, &[1, 2]);
    });
}

/// Two threads install the same CPU's buckets while it is drained.
#[test]
fn a_drain_and_installs_lose_no_object() {
    check(Flaw::None, 2, || {
        let world = World::new(Flaw::None);
        let installer = |object: usize| {
            let world = world.clone();
            thread::spawn(move || {
                world.buckets.install(&world.cpu);
                world.buckets.resize(&world.cpu, OBJECTS, 2);
                world.free(object)
            })
        };
        let (first, second) = (installer(1), installer(2));
        let mut hands = world.drain(2);
        hands.extend(first.join().unwrap());
        hands.extend(second.join().unwrap());
        world.assert_all(hands, &[1, 2]);
    });
}

/// A thread lets two runs wait and looks for one, while others take all that wait. Of one that is left the next drain hears.
#[test]
fn a_run_that_waits_has_one_taker() {
    check(Flaw::None, 2, || {
        let world = World::with(&[], 0, Flaw::None);
        let run = |i: usize| (RUNS, (i * base::units::PAGE) as *mut u8);
        let number = |(class, run): (Class, *mut u8)| {
            assert_eq!(class, RUNS);
            run as usize / base::units::PAGE
        };
        let takers = [(); 2].map(|()| {
            let world = world.clone();
            thread::spawn(move || world.buckets.take_all_waiting().map(number).collect::<Vec<_>>())
        });
        let mut hands = Vec::new();
        for i in [1, 2] {
            let before = world.buckets.wait(&world.cpu, run(i));
            world.buckets.note_much_waiting();
            hands.extend(before.unwrap_or_else(|_| panic!("the CPU has buckets")).map(number));
        }
        takers.into_iter().for_each(|taker| hands.extend(taker.join().unwrap()));
        let left = world.buckets.take_waiting(&world.cpu).map(number);
        assert!(left.is_none() || world.buckets.is_much_waiting());
        hands.extend(left);
        world.assert_all(hands, &[1, 2]);
    });
}

fn two_drains(flaw: Flaw) {
    check(flaw, 3, move || {
        let world = World::with(&[1], 2, flaw);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.drain(2))
        };
        let mut hands = world.drain(2);
        hands.extend(other.join().unwrap());
        assert_eq!(world.free(2), None, "the CPU has its buckets again");
        world.assert_all(hands, &[1, 2]);
    });
}

#[test]
fn drains_take_turns() {
    two_drains(Flaw::None);
}

#[test]
#[should_panic]
fn without_the_lock_two_empty_one_slab() {
    two_drains(Flaw::TwoDrains);
}

/// A bucket is cut to `room` by another CPU's thread, and grown again, between a pop and pushes.
fn resize_against_sections(flaw: Flaw, room: usize) {
    check(flaw, 3, move || {
        let world = World::with(&[1], 2, flaw);
        let tuner = {
            let world = world.clone();
            thread::spawn(move || {
                world.buckets.resize_all(OBJECTS, room);
                world.buckets.resize_all(OBJECTS, 3);
            })
        };
        let mut hands = Vec::from_iter(world.pop());
        hands.extend([2, 3, 4].into_iter().filter_map(|object| world.free(object)));
        tuner.join().unwrap();
        world.assert_all(hands, &[1, 2, 3, 4]);
    });
}

#[test]
fn a_resize_loses_no_commit() {
    (0..=1).for_each(|room| resize_against_sections(Flaw::None, room));
}

#[test]
#[should_panic]
fn in_one_word_it_does() {
    resize_against_sections(Flaw::OneWord, 1);
}

/// Refill, free, a shrinking ceiling and a drain, at once.
#[test]
fn a_resize_and_a_drain_agree() {
    check(Flaw::None, 2, || {
        let world = World::with(&[1], 1, Flaw::None);
        let refill = {
            let world = world.clone();
            thread::spawn(move || {
                world.buckets.resize(&world.cpu, OBJECTS, 3);
                world.free(2)
            })
        };
        let balancer = {
            let world = world.clone();
            thread::spawn(move || {
                world.buckets.resize_all(OBJECTS, 0);
                world.drain(1)
            })
        };
        let mut hands = Vec::from_iter(world.pop());
        hands.extend(refill.join().unwrap());
        hands.extend(balancer.join().unwrap());
        world.assert_all(hands, &[1, 2]);
    });
}

/// A bucket of runs gets room from two threads, while it is emptied: what all rooms come to is known to the page.
fn rooms(flaw: Flaw) {
    check(flaw, 3, move || {
        const BUDGET: Budget = Budget { all: Pages(3), share: Pages(3), most: Pages(3), one_beyond: false };
        let world = World::with(&[], 0, flaw);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.buckets.make_room(&world.cpu, RUNS, &BUDGET, |_| ()))
        };
        assert!(world.buckets.make_room(&world.cpu, RUNS, &BUDGET, |_| ()));
        assert!(world.push(RUNS, 1), "there is room for one");
        assert!(other.join().unwrap());
        assert!(world.buckets.has_rooms());
        assert_eq!(world.drain(0), [1]);
        assert!(!world.buckets.has_rooms(), "a room is left of which nobody has the pages");
    });
}

#[test]
fn the_sum_of_rooms_is_exact() {
    rooms(Flaw::None);
}

#[test]
#[should_panic(expected = "a room is left")]
fn without_an_exchange_it_is_not() {
    rooms(Flaw::NoExchange);
}
