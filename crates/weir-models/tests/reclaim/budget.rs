//! Bytes that are promised and handed out while others read the budget (`reclaim/budget.rs`), its own source, on a model
//! checker's atomics. What a thread is about to touch is in the estimate from its promise on, whatever comes between.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

#[macro_use]
#[path = "../../../weir-core/src/macros.rs"]
mod macros;

/// Parts that the source stands on, here.
#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/base"]
mod base {
    pub mod time;
}
mod platform {
    pub use weir_models::sync;
}

#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/reclaim/budget.rs"]
mod budget;

use base::time::Time;
use budget::{Budget, Room};
use loom::sync::Arc;
use loom::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use loom::thread;

const BYTES: u64 = 100;
const CAPACITY: u64 = 1_000;

/// Promises and hands out, and touches nothing yet.
fn take(budget: &Budget, is_flawed: bool, has_promised: &AtomicBool) {
    budget.promise(BYTES, Time(1));
    has_promised.store(true, Release);
    if is_flawed {
        // The promise is forgotten before the bytes are handed out.
        budget.inherit();
    }
    budget.hand_out(BYTES, Time(1));
}

fn fresh() -> Arc<Budget> {
    let budget = Arc::new(Budget::new());
    budget.read(Room::shared(CAPACITY, 0), 0, Time(1));
    budget
}

/// Another thread looks at the estimate, at any moment after the promise.
fn looks(is_flawed: bool) {
    weir_models::check(3, move || {
        let (budget, has_promised) = (fresh(), Arc::new(AtomicBool::new(false)));
        let (other, promised) = (budget.clone(), has_promised.clone());
        let taker = thread::spawn(move || take(&other, is_flawed, &promised));
        if has_promised.load(Acquire) {
            assert!(budget.room(0).used >= BYTES, "bytes in neither");
        }
        taker.join().unwrap();
        assert_eq!(budget.room(0).used, BYTES);
    });
}

#[test]
fn what_was_promised_stays_in_the_estimate() {
    looks(false);
}

#[test]
fn a_promise_that_ends_first_is_noticed() {
    weir_models::must_fail("bytes in neither", || looks(true));
}

/// A reading comes between, at which nothing of it is resident yet.
#[test]
fn no_reading_loses_what_is_about_to_be_touched() {
    weir_models::check(3, || {
        let budget = fresh();
        let other = budget.clone();
        let taker = thread::spawn(move || take(&other, false, &AtomicBool::new(false)));
        budget.read(Room::shared(CAPACITY, 0), 0, Time(2));
        taker.join().unwrap();
        assert!(budget.room(0).used >= BYTES, "a reading lost {BYTES} bytes");
        // The next one finds them resident, and counts them once.
        budget.read(Room::shared(CAPACITY, BYTES), 0, Time(20_000_000));
        assert_eq!(budget.room(0).used, BYTES);
    });
}

/// Another thread looks while a reading is under way: what the reading moves from one part to another is in one of them.
#[test]
fn a_reading_under_way_hides_nothing() {
    weir_models::check(2, || {
        let (budget, has_promised) = (fresh(), Arc::new(AtomicBool::new(false)));
        let (taking, reading, promised) = (budget.clone(), budget.clone(), has_promised.clone());
        let taker = thread::spawn(move || take(&taking, false, &promised));
        let reader = thread::spawn(move || _ = reading.read(Room::shared(CAPACITY, 0), 0, Time(2)));
        if has_promised.load(Acquire) {
            assert!(budget.room(0).used >= BYTES, "bytes in neither");
        }
        [taker, reader].into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// What was handed out and is told to be about to show does show.
#[test]
fn what_shows_is_never_in_neither() {
    weir_models::check(3, || {
        let budget = fresh();
        take(&budget, false, &AtomicBool::new(false));
        let other = budget.clone();
        let reader = thread::spawn(move || {
            other.read(Room::shared(CAPACITY, 0), 0, Time(2));
            other.read(Room::shared(CAPACITY, BYTES), 0, Time(3));
        });
        assert!(budget.room(0).used >= BYTES, "bytes in neither");
        reader.join().unwrap();
        assert_eq!(budget.room(0).used, BYTES);
    });
}

/// Two that promise at once, one of which has not handed out yet: its bytes stay in the estimate.
#[test]
fn each_promise_is_its_own() {
    weir_models::check(2, || {
        let budget = fresh();
        let others = [budget.clone(), budget.clone()];
        let threads = others.map(|other| thread::spawn(move || take(&other, false, &AtomicBool::new(false))));
        budget.read(Room::shared(CAPACITY, 0), 0, Time(2));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(budget.room(0).used >= 2 * BYTES, "a promise was lost");
    });
}
