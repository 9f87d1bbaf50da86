//! The block server's registered runs: an operation against a squeeze against the worker that empties slots. The table is its own
//! source (`crates/weir-nbd/src/buffers/fixed_table.rs`) on a model checker's lock; the ring is a slot that the kernel reads. The
//! model stands here, beside the others, as a test of `weir-nbd` would have the whole server built for the checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

/// Lock that the table is made of, here.
mod sync {
    pub use loom::sync::{Mutex, MutexGuard};
    pub use std::sync::PoisonError;
}

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../weir-nbd/src/buffers/fixed_table.rs"]
mod fixed_table;

use fixed_table::{FixedTable, Registered};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use loom::thread;

/// Change of the protocol, to show that the model sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A request's run is put while the kernel still works on it.
    PutsEarly,
    /// The worker drops a run before it empties the slot.
    FreesFirst,
}

/// The slot's run as the kernel knows it; `NONE`: the slot is empty.
const NONE: usize = usize::MAX;

/// A run's memory: a pool hands it to others when it is dropped.
struct Run {
    memory: Arc<Memory>,
}

struct Memory {
    is_freed: AtomicBool,
    slot: AtomicUsize,
}

impl Drop for Run {
    fn drop(&mut self) {
        assert_eq!(self.memory.slot.load(SeqCst), NONE, "a run goes back while a slot names it");
        self.memory.is_freed.store(true, SeqCst);
    }
}

struct World {
    table: FixedTable<Run>,
    memory: Arc<Memory>,
    flaw: Flaw,
}

impl World {
    fn new(flaw: Flaw) -> (Arc<Self>, Registered<Run>) {
        let memory = Arc::new(Memory { is_freed: AtomicBool::new(false), slot: AtomicUsize::new(0) });
        let held = Registered { slot: 0, run: Run { memory: memory.clone() }, pages: 1 };
        (Arc::new(Self { table: FixedTable::new(), memory, flaw }), held)
    }

    /// The kernel's side of an operation by the slot.
    fn operate(&self) {
        for when in ["begins", "ends"] {
            assert_ne!(
                self.memory.slot.load(SeqCst),
                NONE,
                "an operation after its run was retired {when}: an empty slot"
            );
            assert!(
                !self.memory.is_freed.load(SeqCst),
                "an operation after its run was retired {when}: the run went back"
            );
        }
    }

    /// A request that holds the run: an operation, and the run is put.
    fn request(&self, held: Registered<Run>) {
        if self.flaw == Flaw::PutsEarly {
            self.table.put(held);
            self.operate();
        } else {
            self.operate();
            self.table.put(held);
        }
    }

    /// The worker's turn.
    fn empty_slots(&self) {
        for retired in self.table.take_retired() {
            if self.flaw == Flaw::FreesFirst {
                drop(retired.run);
                self.memory.slot.store(NONE, SeqCst);
            } else {
                self.memory.slot.store(NONE, SeqCst);
                drop(retired.run);
            }
        }
    }
}

/// A request on one thread, a squeeze on another; this one is the worker.
fn squeezed(flaw: Flaw) {
    loom::model(move || {
        let (world, held) = World::new(flaw);
        let (request, event) = (world.clone(), world.clone());
        let request = thread::spawn(move || request.request(held));
        let event = thread::spawn(move || event.table.squeeze());
        world.empty_slots();
        request.join().unwrap();
        event.join().unwrap();
        world.empty_slots();
        assert_eq!(world.table.idle(), 0, "a run stays pinned in the window");
        assert!(world.memory.is_freed.load(SeqCst), "a run is lost");
    });
}

#[test]
fn a_slot_is_emptied_only_after_the_operations_on_it_and_no_run_stays_pinned() {
    squeezed(Flaw::None);
}

#[test]
fn two_requests_in_turn_and_a_squeeze_between_any_two_steps() {
    loom::model(|| {
        let (world, held) = World::new(Flaw::None);
        let event = world.clone();
        let event = thread::spawn(move || event.table.squeeze());
        world.request(held);
        // The next request holds the same run, if it is not retired; another would register it anew.
        if let Some(held) = world.table.hold(1) {
            world.request(held);
        }
        event.join().unwrap();
        world.empty_slots();
        assert!(world.memory.is_freed.load(SeqCst), "a run is lost");
        world.table.relax();
        assert!(!world.table.is_squeezed());
    });
}

#[test]
#[ignore = "must fail: `a_put_before_the_operation_is_done_is_noticed` runs it"]
fn puts_early() {
    squeezed(Flaw::PutsEarly);
}

#[test]
fn a_put_before_the_operation_is_done_is_noticed() {
    weir_models::must_fail("puts_early", "an operation after its run was retired");
}

#[test]
#[ignore = "must fail: `a_run_that_is_freed_first_is_noticed` runs it"]
fn frees_first() {
    squeezed(Flaw::FreesFirst);
}

#[test]
fn a_run_that_is_freed_first_is_noticed() {
    weir_models::must_fail("frees_first", "a run goes back while a slot names it");
}
