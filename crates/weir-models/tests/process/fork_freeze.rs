//! The heap that a `fork` holds, opened by a thread that waits for it (`process/fork_freeze.rs`), its own source, on a
//! model checker's atomics. A fork that waits for that thread's lock goes on. The heap is opened once, and by a thread
//! that looked at the fork that it opens.
#![cfg(loom)]

use std::sync::atomic::{AtomicU32 as Plain, Ordering::Relaxed};

/// Parts that `fork_freeze.rs` is made of, here.
mod sync {
    use super::{FLAW, Relaxed, TORN_EXCHANGE, UNNOTED};
    use loom::sync::atomic::Ordering;
    pub use loom::sync::atomic::{AtomicBool, AtomicU32};

    pub struct AtomicUsize(loom::sync::atomic::AtomicUsize);

    impl AtomicUsize {
        pub fn new(value: usize) -> Self {
            Self(loom::sync::atomic::AtomicUsize::new(value))
        }

        pub fn load(&self, order: Ordering) -> usize {
            self.0.load(order)
        }

        pub fn store(&self, value: usize, order: Ordering) {
            self.0.store(value, order);
        }

        pub fn swap(&self, value: usize, order: Ordering) -> usize {
            self.0.swap(value, order)
        }

        pub fn compare_exchange(&self, old: usize, new: usize, good: Ordering, bad: Ordering) -> Result<usize, usize> {
            let is_look = new != 0 && new & 3 == 0;
            match FLAW.load(Relaxed) {
                UNNOTED if is_look => {}
                TORN_EXCHANGE => {}
                _ => return self.0.compare_exchange(old, new, good, bad),
            }
            let now = self.0.load(Ordering::Acquire);
            if now != old {
                return Err(now);
            }
            if FLAW.load(Relaxed) == TORN_EXCHANGE {
                self.0.store(new, Ordering::Release);
            }
            Ok(old)
        }
    }

    macro_rules! shared {
        ($($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
            loom::lazy_static! { $($(#[$meta])* static ref $name: $type = $value;)* }
        };
    }
    pub(crate) use shared;
}

mod messages {
    pub fn torn_by_fork() -> ! {
        panic!("aborted")
    }
}

mod os {
    pub(crate) use super::sync;
    pub mod process {
        pub fn gettid() -> u32 {
            crate::ME.with(|me| me.get()) as u32
        }
    }

    pub mod thread_block {
        pub use crate::ranks;
    }

    pub mod tasks {
        pub fn sched_yield() {
            loom::thread::yield_now();
        }

        use crate::{FORKER, FORKS, IN_FUTEX, LOOKED_AT, Relaxed};
        use loom::sync::atomic::Ordering::AcqRel;

        /// Whether the thread sleeps, whatever the caller may read: the kernel is asked.
        pub fn sleeps_in_futex(thread: u32) -> bool {
            assert_eq!(thread as usize, FORKER);
            LOOKED_AT.store(FORKS.load(Relaxed), Relaxed);
            IN_FUTEX.fetch_add(0, AcqRel) != 0
        }
    }
}

mod platform {
    pub mod linux {
        pub use crate::heap::Heap as Engine;
    }
}

/// A thread's word of lock ranks.
pub fn ranks() -> &'static Plain {
    &RANKS[ME.with(|me| me.get())]
}

/// A heap of one lock.
mod heap {
    use super::{FORKER, FORKS, LOOKED_AT, ME, Relaxed, fork_freeze, ranks};
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire},
    };
    use loom::sync::{Condvar, Mutex};

    pub struct Heap {
        is_held: AtomicBool,
        objects: UnsafeCell<u32>,
    }

    loom::lazy_static! {
        static ref EVENTS: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
        pub static ref HEAP: Heap = Heap { is_held: AtomicBool::new(false), objects: UnsafeCell::new(0) };
    }

    /// Something happened that a waiting thread would see at its next look.
    pub fn event() {
        *EVENTS.0.lock().unwrap() += 1;
        EVENTS.1.notify_all();
    }

    impl Heap {
        /// Each wait is a long one, and ends with the next event.
        fn acquire(&self) {
            loop {
                let seen = *EVENTS.0.lock().unwrap();
                if self.is_held.compare_exchange(false, true, AcqRel, Acquire).is_ok() {
                    return;
                }
                fork_freeze::waited_long(self);
                let events = EVENTS.0.lock().unwrap();
                if *events == seen {
                    drop(EVENTS.1.wait(events).unwrap());
                }
            }
        }

        fn release(&self) {
            assert!(self.is_held.swap(false, AcqRel), "the heap is opened twice");
            event();
        }

        pub fn alloc(&self) {
            self.acquire();
            // SAFETY: what the protocol is to guarantee, and the checker to check.
            self.objects.with_mut(|objects| unsafe { *objects += 1 });
            self.release();
        }

        /// The view of the heap that a fork has: here the heap itself.
        pub fn fork(&self) -> &Self {
            self
        }

        pub fn freeze(&self) {
            ranks().store(1, Relaxed);
            self.acquire();
        }

        pub unsafe fn thaw(&self) -> bool {
            // SAFETY: as in `alloc`.
            self.objects.with_mut(|objects| unsafe { *objects += 1 });
            let by_other = ME.with(|me| me.get()) != FORKER;
            assert!(!by_other || FORKS.load(Relaxed) == LOOKED_AT.load(Relaxed), "the look was at another fork");
            self.release();
            ranks().store(0, Relaxed);
            true
        }

        pub unsafe fn thaw_child(&self) {
            unreachable!("there is no child here")
        }

        pub fn is_alone(&self) -> bool {
            false
        }

        pub fn is_nested(&self) -> bool {
            false
        }
    }
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-linux/src/process/fork_freeze.rs"]
mod fork_freeze;

use heap::HEAP;
use loom::sync::atomic::{AtomicU32, Ordering::AcqRel};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The flaws, of which a process has one.
static FLAW: Plain = Plain::new(0);
/// Comparing the word and changing it are two steps.
const TORN_EXCHANGE: u32 = 1;
/// A thread that looks at the forking one does not note that in the word.
const UNNOTED: u32 = 2;

const FORKER: usize = 0;

loom::thread_local! {
    static ME: std::cell::Cell<usize> = std::cell::Cell::new(FORKER);
}
loom::lazy_static! {
    static ref RANKS: [Plain; 3] = [const { Plain::new(0) }; 3];
    /// How many forks have begun, and the one that was looked at last.
    static ref FORKS: Plain = Plain::new(0);
    static ref LOOKED_AT: Plain = Plain::new(0);
    /// 1: the forking thread sleeps until it has libc's lock.
    static ref IN_FUTEX: AtomicU32 = AtomicU32::new(0);
}

/// Forks: takes the heap, then libc's lock, under which the process is copied.
fn fork(libc: &Mutex<()>) {
    FORKS.fetch_add(1, Relaxed);
    fork_freeze::freeze(&HEAP, true);
    IN_FUTEX.swap(1, AcqRel);
    heap::event();
    let copying = libc.lock().unwrap();
    IN_FUTEX.swap(0, AcqRel);
    drop(copying);
    // SAFETY: follows `freeze` on this thread.
    unsafe { fork_freeze::thaw(&HEAP) };
}

/// `forks` forks beside `others` threads that allocate, the first under libc's lock.
fn model(forks: usize, others: usize) {
    let mut builder = loom::model::Builder::new();
    // Those with few switches that nothing forces, and of many threads the first of very many.
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.max_permutations = Some(50_000);
    builder.check(move || {
        let libc = Arc::new(Mutex::new(()));
        let alloc = |me: usize| {
            let libc = libc.clone();
            thread::spawn(move || {
                ME.with(|this| this.set(me));
                let _held = (me == 1).then(|| libc.lock().unwrap());
                HEAP.alloc();
                assert_eq!(RANKS[me].load(Relaxed), 0);
            })
        };
        let others: Vec<_> = (1..=others).map(alloc).collect();
        (0..forks).for_each(|_| fork(&libc));
        others.into_iter().for_each(|thread| thread.join().unwrap());
        HEAP.alloc();
        assert_eq!(RANKS[FORKER].load(Relaxed), 0);
    });
}

#[test]
fn a_fork_and_who_it_waits_for_go_on() {
    model(1, 1);
}

#[test]
fn the_look_and_the_opening_are_of_one_fork() {
    model(2, 1);
}

#[test]
fn of_two_that_wait_one_opens() {
    model(1, 2);
}

#[test]
fn flaws_are_noticed() {
    weir_models::must_fail("Concurrent write accesses", || {
        FLAW.store(TORN_EXCHANGE, Relaxed);
        model(1, 2);
    });
    weir_models::must_fail("the look was at another fork", || {
        FLAW.store(UNNOTED, Relaxed);
        model(2, 1);
    });
}
