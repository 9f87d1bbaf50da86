//! A cache is destroyed, and its number becomes another's, while reclaim and the thread that runs finalizers look at it
//! (`caches/user_cache.rs`, the life of a number).
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const FREE: u8 = 0;
const LIVE: u8 = 2;
const DYING: u8 = 3;

/// What is left out, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// The destroyer does not take the batch lock for `DYING`.
    Batch,
    /// The destroyer does not pass the batch locks of further nodes.
    Pass,
    /// The destroyer does not wait for finalizers.
    Wait,
    /// Reclaim does not check that the cache is live.
    Check,
    /// Reclaim reads what kind of cache it is before it holds the lock.
    Early,
}

struct Cache {
    batch: Mutex<()>,
    /// Of a further node, whose slabs are reported under it.
    batch_of_node: Mutex<()>,
    state: AtomicU8,
    finalizing: AtomicU32,
    /// Sleepers on `finalizing`.
    queue: Mutex<()>,
    wakes: Condvar,
    /// Objects in the depot and in slabs.
    depot: Mutex<u32>,
    slabs: Mutex<u32>,
    /// The geometry: read by all, written when the number gets another cache.
    geometry: UnsafeCell<u32>,
    omit: Omit,
}

impl Cache {
    fn new(depot: u32, slabs: u32, omit: Omit) -> Arc<Self> {
        Arc::new(Self {
            batch: Mutex::new(()),
            batch_of_node: Mutex::new(()),
            state: AtomicU8::new(LIVE),
            finalizing: AtomicU32::new(0),
            queue: Mutex::new(()),
            wakes: Condvar::new(),
            depot: Mutex::new(depot),
            slabs: Mutex::new(slabs),
            geometry: UnsafeCell::new(1),
            omit,
        })
    }

    fn look_at_geometry(&self) -> u32 {
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        self.geometry.with(|geometry| unsafe { *geometry })
    }

    /// A batch of a trim: from the depot into the slabs.
    fn trim(&self) {
        let _batch = self.batch.lock().unwrap();
        if self.omit != Omit::Check && self.state.load(Acquire) != LIVE {
            return;
        }
        let n = std::mem::take(&mut *self.depot.lock().unwrap());
        *self.slabs.lock().unwrap() += n * self.look_at_geometry();
    }

    /// A report of another node's slabs; whether the cache was this one.
    fn report(&self) -> bool {
        if self.omit == Omit::Early && self.state.load(Acquire) == LIVE {
            // Whether its free objects keep their contents.
            self.look_at_geometry();
        }
        let _batch = self.batch_of_node.lock().unwrap();
        if self.state.load(Acquire) != LIVE {
            return false;
        }
        let before = self.look_at_geometry();
        // Released meanwhile, under no other lock.
        self.look_at_geometry() == before
    }

    /// Finalizes an empty slab's objects, in the program's own code, under no lock.
    fn finalize(&self) {
        {
            let _batch = self.batch.lock().unwrap();
            if self.state.load(Acquire) != LIVE {
                return;
            }
            let mut slabs = self.slabs.lock().unwrap();
            if *slabs == 0 {
                return;
            }
            *slabs -= 1;
            self.finalizing.fetch_add(1, Acquire);
        }
        self.look_at_geometry();
        self.finalizing.fetch_sub(1, Release);
        let _queue = self.queue.lock().unwrap();
        self.wakes.notify_one();
    }

    /// Destroys the cache, and makes another under its number. Returns the objects it found.
    fn destroy(&self) -> u32 {
        {
            let _batch = (self.omit != Omit::Batch).then(|| self.batch.lock().unwrap());
            self.state.store(DYING, Release);
        }
        if self.omit != Omit::Pass {
            drop(self.batch_of_node.lock().unwrap());
        }
        if self.omit != Omit::Wait {
            let mut queue = self.queue.lock().unwrap();
            while self.finalizing.load(Acquire) != 0 {
                queue = self.wakes.wait(queue).unwrap();
            }
        }
        let found = std::mem::take(&mut *self.depot.lock().unwrap()) + std::mem::take(&mut *self.slabs.lock().unwrap());
        self.state.store(FREE, Release);
        // SAFETY: as in `look_at_geometry`.
        self.geometry.with_mut(|geometry| unsafe { *geometry = 2 });
        self.state.store(LIVE, Release);
        found
    }
}

fn trim_against_destroy(omit: Omit) {
    loom::model(move || {
        let cache = Cache::new(2, 0, omit);
        let reclaim = {
            let cache = cache.clone();
            thread::spawn(move || cache.trim())
        };
        assert_eq!(cache.destroy(), 2, "reclaim had taken objects out");
        reclaim.join().unwrap();
        assert_eq!(*cache.slabs.lock().unwrap(), 0);
    });
}

#[test]
fn no_trim_works_on_a_destroyed_cache() {
    trim_against_destroy(Omit::Nothing);
}

#[test]
#[should_panic]
fn without_the_batch_lock_one_does() {
    trim_against_destroy(Omit::Batch);
}

#[test]
#[should_panic]
fn without_the_check_one_does() {
    trim_against_destroy(Omit::Check);
}

fn finalize_against_destroy(omit: Omit) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let cache = Cache::new(0, 1, omit);
        let finalizer = {
            let cache = cache.clone();
            thread::spawn(move || cache.finalize())
        };
        cache.destroy();
        finalizer.join().unwrap();
    });
}

#[test]
fn finalizers_are_waited_for() {
    finalize_against_destroy(Omit::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_wait_it_works_on_another_cache() {
    finalize_against_destroy(Omit::Wait);
}

fn report_against_destroy(omit: Omit) {
    loom::model(move || {
        let cache = Cache::new(1, 1, omit);
        let worker = {
            let cache = cache.clone();
            thread::spawn(move || cache.report())
        };
        assert_eq!(cache.destroy(), 2);
        worker.join().unwrap();
    });
}

#[test]
fn no_report_works_on_a_destroyed_cache() {
    report_against_destroy(Omit::Nothing);
}

#[test]
#[should_panic]
fn without_passing_the_nodes_lock_one_does() {
    report_against_destroy(Omit::Pass);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_report_that_reads_before_it_holds_the_lock_reads_another_caches_kind() {
    report_against_destroy(Omit::Early);
}
