//! A `fork` of a program of one thread, and Weir's own threads (`threads/at_work.rs`), its own source, on a model checker's atomics
//! and a futex without a timeout. None of these threads is in the heap while the process is copied, and each goes on after it.
#![cfg(loom)]

use std::sync::atomic::{AtomicBool as Plain, Ordering::Relaxed};

/// Parts that `at_work.rs` is made of, here.
mod os {
    pub mod sync {
        use crate::TORN;
        use loom::sync::atomic::{AtomicU32 as Word, Ordering};

        pub struct AtomicU32(pub Word);

        impl AtomicU32 {
            pub fn new(value: u32) -> Self {
                Self(Word::new(value))
            }

            pub fn load(&self, order: Ordering) -> u32 {
                self.0.load(order)
            }

            pub fn store(&self, value: u32, order: Ordering) {
                self.0.store(value, order);
            }

            pub fn swap(&self, value: u32, order: Ordering) -> u32 {
                self.0.swap(value, order)
            }

            pub fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
                self.0.fetch_sub(value, order)
            }

            pub fn compare_exchange(&self, old: u32, new: u32, good: Ordering, bad: Ordering) -> Result<u32, u32> {
                if new != 1 << 31 || !TORN.load(std::sync::atomic::Ordering::Relaxed) {
                    return self.0.compare_exchange(old, new, good, bad);
                }
                match self.0.load(good) {
                    now if now == old => Ok(self.0.swap(new, good)),
                    now => Err(now),
                }
            }
        }

        pub(crate) use weir_models::sync::constructor;
    }

    pub mod futex {
        use super::sync::AtomicU32;
        use crate::FUTEX;

        pub fn futex_wait(word: &AtomicU32, expected: u32, _: Option<u64>) -> Result<(), ()> {
            FUTEX.wait(&word.0, expected);
            Ok(())
        }

        pub fn futex_wake(_: &AtomicU32, _: u32) -> Result<(), ()> {
            FUTEX.wake_all();
            Ok(())
        }
    }
}

#[allow(dead_code, missing_docs, clippy::new_without_default, reason = "a part of it is used here")]
#[path = "../../../weir-linux/src/threads/at_work.rs"]
mod at_work;

use at_work::AtWork;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use weir_models::futex::Futex;

/// The `fork` looks at the word, and marks it after that.
static TORN: Plain = Plain::new(false);
/// Sleepers do not look at the word.
static BLIND: Plain = Plain::new(false);

loom::lazy_static! {
    static ref FUTEX: Futex = if BLIND.load(Relaxed) { Futex::blind() } else { Futex::new() };
}

struct Process {
    at_work: AtWork,
    heap: UnsafeCell<u32>,
}

/// A thread of Weir's works twice while the program's thread forks; another, if there is one, only begins and ends.
fn forks(with_another: bool) {
    weir_models::check(3, move || {
        let process = Arc::new(Process { at_work: AtWork::new(), heap: UnsafeCell::new(0) });
        let its = process.clone();
        let worker = thread::spawn(move || {
            for _ in 0..if with_another { 1 } else { 2 } {
                its.at_work.begin();
                // SAFETY: the checker finds another access at the same time.
                its.heap.with_mut(|heap| unsafe { *heap += 1 });
                its.at_work.end();
            }
        });
        let its = process.clone();
        let another = with_another.then(|| {
            thread::spawn(move || {
                its.at_work.begin();
                its.at_work.end();
            })
        });
        if process.at_work.hold_up() {
            // The process is copied.
            // SAFETY: as above.
            process.heap.with(|heap| assert!(unsafe { *heap } <= 2));
            process.at_work.go_on();
        }
        worker.join().unwrap();
        another.into_iter().for_each(|another| another.join().unwrap());
        assert!(process.at_work.hold_up(), "one counts as at work for good");
    });
}

#[test]
fn no_thread_of_weirs_is_in_the_heap_while_a_process_is_copied_without_locks() {
    forks(false);
    forks(true);
}

#[test]
fn flaws_are_noticed() {
    weir_models::must_fail("Causality violation", || {
        TORN.store(true, Relaxed);
        forks(false);
    });
    weir_models::must_fail("deadlock", || {
        BLIND.store(true, Relaxed);
        forks(false);
    });
}
