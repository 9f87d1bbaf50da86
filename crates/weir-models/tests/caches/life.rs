//! A cache is destroyed, and its number becomes another's, while reclaim and the thread that runs finalizers look at it. The life
//! of the number is its own source (`caches/cache/life.rs`); the batch locks are the checker's, and the objects counts
//! behind locks.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

/// As much of the platform as a life needs.
mod platform {
    pub use weir_models::sync;

    pub trait Platform {
        fn wait(&self, word: &sync::AtomicU32, expected: u32);
        fn wake(&self, word: &sync::AtomicU32);
    }
}

/// The batch locks of two nodes.
mod pages {
    use loom::sync::{Arc, Mutex, MutexGuard};

    pub struct HeapPages<P> {
        pub platform: P,
        pub batches: Arc<[Mutex<()>; 2]>,
        pub is_open: bool,
        pub are_passed: bool,
    }

    impl<P> HeapPages<P> {
        pub fn batch(&self, node: usize) -> Option<MutexGuard<'_, ()>> {
            (!self.is_open).then(|| self.batches[node].lock().unwrap())
        }

        pub fn pass_batches(&self) {
            if self.are_passed {
                (0..self.batches.len()).for_each(|node| drop(self.batch(node)));
            }
        }
    }
}

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/caches/cache/life.rs"]
mod life;

use life::{LIVE, Life};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use pages::HeapPages;
use platform::Platform;
use weir_models::futex::Futex;

impl Platform for Arc<Futex> {
    fn wait(&self, word: &platform::sync::AtomicU32, expected: u32) {
        Futex::wait(self, word, expected);
    }

    fn wake(&self, _word: &platform::sync::AtomicU32) {
        self.wake_all();
    }
}

/// Omission from the protocol, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// The destroyer does not wait for the batch in flight.
    Batch,
    /// The destroyer does not pass the batch locks of further nodes.
    Pass,
    /// Finalizers are not counted.
    Count,
    /// Reclaim does not check that the cache is live.
    Check,
    /// Reclaim reads what kind of cache it is before it holds the lock.
    Early,
}

struct Cache {
    life: Life,
    pages: HeapPages<Arc<Futex>>,
    /// Pages of the heap, as the destroyer uses them.
    ending: HeapPages<Arc<Futex>>,
    /// Objects in the depot and in slabs.
    depot: Mutex<u32>,
    slabs: Mutex<u32>,
    /// Read by all, written when the number gets another cache.
    geometry: UnsafeCell<u32>,
    omit: Omit,
}

impl Cache {
    fn new(depot: u32, slabs: u32, omit: Omit) -> Arc<Self> {
        let (futex, batches) = (Arc::new(Futex::new()), Arc::new([Mutex::new(()), Mutex::new(())]));
        let pages = |is_open: bool, are_passed: bool| HeapPages {
            platform: futex.clone(),
            batches: batches.clone(),
            is_open,
            are_passed,
        };
        Arc::new(Self {
            life: Life::new(LIVE),
            pages: pages(false, true),
            ending: pages(omit == Omit::Batch, omit != Omit::Pass),
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
        let _batch = self.pages.batch(0);
        if self.omit != Omit::Check && !self.life.is_live() {
            return;
        }
        let n = std::mem::take(&mut *self.depot.lock().unwrap());
        *self.slabs.lock().unwrap() += n * self.look_at_geometry();
        assert!(self.omit != Omit::Nothing || self.life.is_live(), "what is live stays so under the first node's lock");
    }

    /// A report of another node's slabs; whether the cache was this one.
    fn report(&self) -> bool {
        if self.omit == Omit::Early && self.life.is_live() {
            // Whether its free objects keep their contents.
            self.look_at_geometry();
        }
        let _batch = self.pages.batch(1);
        if !self.life.is_live() {
            return false;
        }
        let before = self.look_at_geometry();
        // Released meanwhile, under no other lock.
        self.look_at_geometry() == before
    }

    /// Finalizes an empty slab's objects, in the program's own code, under no lock.
    fn finalize(&self) {
        {
            let _batch = self.pages.batch(0);
            if !self.life.is_live() {
                return;
            }
            let mut slabs = self.slabs.lock().unwrap();
            if *slabs == 0 {
                return;
            }
            *slabs -= 1;
            if self.omit != Omit::Count {
                self.life.begin_finalizers();
            }
        }
        self.look_at_geometry();
        if self.omit != Omit::Count {
            self.life.end_finalizers(&self.pages.platform);
        }
    }

    /// Destroys the cache, and makes another under its number. Returns the objects it found.
    fn destroy(&self) -> u32 {
        assert!(self.life.end(&self.ending));
        let found = std::mem::take(&mut *self.depot.lock().unwrap()) + std::mem::take(&mut *self.slabs.lock().unwrap());
        self.life.free();
        // SAFETY: as in `look_at_geometry`.
        self.geometry.with_mut(|geometry| unsafe { *geometry = 2 });
        self.life.begin();
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
    weir_models::check(3, move || {
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
fn without_the_count_one_works_on_another_cache() {
    finalize_against_destroy(Omit::Count);
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
