//! Threads that allocate at once below a hard limit (`pages/hard_limit/limit.rs`), its own source, on a model checker's
//! atomics. The bytes that they take together stay below the limit.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

#[macro_use]
#[path = "../../../weir-core/src/macros.rs"]
mod macros;

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/base"]
mod base {
    pub mod units;
}

/// Parts that the source stands on, here.
mod platform {
    pub use weir_models::sync;
}

#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/pages/hard_limit/limit.rs"]
mod limit;

use base::units::Bytes;
use limit::HardLimit;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;

const LIMIT: Bytes = Bytes(3);

struct Shared {
    limit: HardLimit,
    /// Bytes that the zone holds, behind its lock.
    zone: Mutex<Bytes>,
    /// What they were at the end of the last turn, as `Zone::resident` says without the lock.
    charged: AtomicUsize,
    /// The flaw: bytes that are taken count only after their hold is gone.
    is_late: bool,
}

impl Shared {
    /// Takes `bytes`, or what there is room for.
    fn take(&self, bytes: Bytes) {
        let hold = self.limit.hold(bytes, LIMIT, || self.charged());
        let got = hold.bytes();
        if self.is_late {
            drop(hold);
            self.charge(got);
        } else {
            self.charge(got);
            drop(hold);
        }
    }

    fn charged(&self) -> Bytes {
        Bytes(self.charged.load(Relaxed))
    }

    fn charge(&self, bytes: Bytes) {
        let mut zone = self.zone.lock().unwrap();
        *zone += bytes;
        self.charged.store(zone.0, Relaxed);
    }
}

fn model(wanted: &'static [usize], is_late: bool) {
    weir_models::check((wanted.len() > 2).then_some(3), move || {
        let shared = Arc::new(Shared {
            limit: HardLimit::new(),
            zone: Mutex::new(Bytes::ZERO),
            charged: AtomicUsize::new(0),
            is_late,
        });
        let threads: Vec<_> = wanted[1..]
            .iter()
            .map(|&bytes| {
                let shared = shared.clone();
                thread::spawn(move || shared.take(Bytes(bytes)))
            })
            .collect();
        shared.take(Bytes(wanted[0]));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(shared.charged() <= LIMIT, "over the limit");
        assert!(shared.limit.held().is_zero(), "every hold is given back");
        // Whoever comes alone gets what is left.
        let left = LIMIT - shared.charged();
        assert_eq!(shared.limit.hold(LIMIT, LIMIT, || shared.charged()).bytes(), left);
    });
}

#[test]
fn two_threads_stay_below_the_limit() {
    model(&[2, 2], false);
    model(&[3, 1], false);
}

#[test]
fn so_do_three() {
    model(&[1, 2, 2], false);
}

#[test]
fn a_charge_that_comes_late_is_noticed() {
    weir_models::must_fail("over the limit", || model(&[2, 2], true));
}
