//! The words of the heap profile that are read without its lock (`profile/recorder.rs`), on a model checker's atomics.
//!
//! The lock is over the table of samples, and over every change of the words. Read without it are:
//! - `live`, the sampled blocks there are. A free that finds 0 looks no further. It is raised under the lock before the
//!   block is handed out; who frees the block has it from there, so reads that value or a later one, and each later one
//!   counts the block until it is forgotten. So a free of a sampled block never finds 0, though the word is relaxed.
//! - The filter's counts (`profile/filter.rs`), which are to the blocks of one hash what `live` is to all.
//! - `table`, where the shared table is. It is stored once, with release order, after the table's header was written, so
//!   who finds it finds the header. Of two threads that make one at a time the second finds the samples there, under the
//!   lock, and gives its own mapping back.
//! - `mean`, of which the table's header has a copy. Both are stored under the lock, so that they are of one call in the
//!   end. A sample looks at it under the lock: where there are samples and a mean there is a table.
//!
//! Mirrored from `recorder.rs`: `switch`, `install`, `record` and `forget`. Each model is run with a flaw as well.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

/// What is done wrong.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// A block is handed out before it is remembered.
    HandedOutFirst,
    /// The count is changed after the lock was given back.
    CountedOutside,
    /// The table is shown without release order.
    ShownRelaxed,
    /// The mean and its copy are stored without the lock.
    SetOutside,
}

/// Blocks, and mappings, of a model.
const MOST: usize = 2;

struct Recorder {
    flaw: Flaw,
    /// The samples: numbers of blocks; none before the table is there.
    samples: Mutex<Option<Vec<usize>>>,
    /// The table: 0, or the number of the mapping and 1.
    table: AtomicUsize,
    live: AtomicUsize,
    mean: AtomicUsize,
    /// The filter: a count for each block's hash.
    filter: [AtomicUsize; MOST],
    /// In the header of each mapping: what says that it is a table, and the copy of the mean.
    magic: [UnsafeCell<u32>; MOST],
    copied_mean: [AtomicUsize; MOST],
}

impl Recorder {
    fn new(flaw: Flaw) -> Arc<Self> {
        let zero = |_| AtomicUsize::new(0);
        Arc::new(Self {
            flaw,
            samples: Mutex::new(None),
            table: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            mean: AtomicUsize::new(0),
            filter: core::array::from_fn(zero),
            magic: core::array::from_fn(|_| UnsafeCell::new(0)),
            copied_mean: core::array::from_fn(zero),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<usize>>> {
        self.samples.lock().unwrap()
    }

    fn table(&self) -> Option<usize> {
        self.table.load(Acquire).checked_sub(1)
    }

    /// What a reader of the table sees first.
    fn magic(&self) -> Option<u32> {
        // SAFETY: the checker fails where the header is written at this time, which is what is tested.
        self.table().map(|at| self.magic[at].with(|magic| unsafe { *magic }))
    }

    /// `mapping` is this call's own; whether it is the table now.
    fn switch(&self, mapping: usize, mean: usize) -> bool {
        let is_installed = self.table().is_none() && self.install(mapping);
        let lock = (self.flaw != Flaw::SetOutside).then(|| self.lock());
        self.mean.store(mean, Relaxed);
        if let Some(table) = self.table() {
            self.copied_mean[table].store(mean, Relaxed);
        }
        drop(lock);
        is_installed
    }

    fn install(&self, mapping: usize) -> bool {
        let mut samples = self.lock();
        if samples.is_some() {
            return false;
        }
        *samples = Some(Vec::new());
        // SAFETY: the mapping is the caller's, and not shown to anyone yet.
        self.magic[mapping].with_mut(|magic| unsafe { *magic = 1 });
        let order = if self.flaw == Flaw::ShownRelaxed { Relaxed } else { Release };
        self.table.store(mapping + 1, order);
        true
    }

    fn record(&self, block: usize) -> bool {
        let mut samples = self.lock();
        let Some(kept) = samples.as_mut() else { return false };
        if self.mean.load(Relaxed) == 0 {
            return false;
        }
        assert!(self.table().is_some(), "there are samples, and no table");
        kept.push(block);
        self.count(samples, block, |count| count + 1);
        true
    }

    fn forget(&self, block: usize) -> bool {
        if self.live.load(Relaxed) == 0 || self.filter[block % MOST].load(Relaxed) == 0 {
            return false;
        }
        let mut samples = self.lock();
        let Some(kept) = samples.as_mut() else { return false };
        let Some(at) = kept.iter().position(|&sample| sample == block) else { return false };
        kept.swap_remove(at);
        self.count(samples, block, |count| count - 1);
        true
    }

    fn count(&self, lock: MutexGuard<'_, Option<Vec<usize>>>, block: usize, change: impl Fn(usize) -> usize) {
        let lock = (self.flaw != Flaw::CountedOutside).then_some(lock);
        for word in [&self.live, &self.filter[block % MOST]] {
            word.store(change(word.load(Relaxed)), Relaxed);
        }
        drop(lock);
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Interleavings with few switches that nothing forces.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A block goes from the thread that was given it to another, which frees it; a third frees one that was there before.
fn handed_on(flaw: Flaw) {
    const HANDED_ON: usize = 1;
    const EARLIER: usize = 2;
    check(move || {
        let recorder = Recorder::new(flaw);
        recorder.switch(0, 1);
        assert!(recorder.record(EARLIER));
        let handed = Arc::new(AtomicUsize::new(0));
        let (giver, to) = (recorder.clone(), handed.clone());
        let giver = thread::spawn(move || {
            let hand_out = |order: Ordering| to.store(HANDED_ON, order);
            if flaw == Flaw::HandedOutFirst {
                hand_out(Release);
            }
            assert!(giver.record(HANDED_ON));
            if flaw != Flaw::HandedOutFirst {
                hand_out(Release);
            }
        });
        let other = recorder.clone();
        let other = thread::spawn(move || assert!(other.forget(EARLIER), "a free misses its sample"));
        let was_handed = handed.load(Acquire) == HANDED_ON;
        if was_handed {
            assert!(recorder.forget(HANDED_ON), "a free misses its sample");
        }
        giver.join().unwrap();
        other.join().unwrap();
        let left = recorder.lock().as_ref().unwrap().len();
        assert_eq!((left, recorder.live.load(Relaxed)), (usize::from(!was_handed), left), "the count is wrong");
    });
}

/// Two threads switch sampling on at once, and a third looks for the table.
fn switched_on_twice(flaw: Flaw) {
    check(move || {
        let recorder = Recorder::new(flaw);
        let other = recorder.clone();
        let other = thread::spawn(move || other.switch(1, 7));
        let reader = recorder.clone();
        let reader = thread::spawn(move || {
            assert_ne!(reader.magic(), Some(0), "a table is shown before its header");
            reader.record(1);
        });
        let is_first = recorder.switch(0, 5);
        assert!(is_first != other.join().unwrap(), "one table is made, and one mapping given back");
        reader.join().unwrap();
        let table = recorder.table().unwrap();
        let means = (recorder.mean.load(Relaxed), recorder.copied_mean[table].load(Relaxed));
        assert!(means == (5, 5) || means == (7, 7), "the two words are of two calls: {means:?}");
    });
}

#[test]
fn a_free_finds_its_sample_without_the_lock() {
    handed_on(Flaw::None);
}

#[test]
fn one_table_is_shown_whole_and_the_means_are_of_one_call() {
    switched_on_twice(Flaw::None);
}

#[test]
#[ignore = "must fail: `a_block_that_is_handed_out_too_early_is_noticed` runs it"]
fn handed_out_first() {
    handed_on(Flaw::HandedOutFirst);
}

#[test]
fn a_block_that_is_handed_out_too_early_is_noticed() {
    weir_models::must_fail("handed_out_first", "a free misses its sample");
}

#[test]
#[ignore = "must fail: `a_count_outside_of_the_lock_is_noticed` runs it"]
fn counted_outside() {
    handed_on(Flaw::CountedOutside);
}

#[test]
fn a_count_outside_of_the_lock_is_noticed() {
    // Which of its assertions fails first is the checker's choice: both say what is wrong with the count.
    weir_models::must_fail("counted_outside", "panicked");
}

#[test]
#[ignore = "must fail: `a_table_that_is_shown_too_early_is_noticed` runs it"]
fn shown_relaxed() {
    switched_on_twice(Flaw::ShownRelaxed);
}

#[test]
fn a_table_that_is_shown_too_early_is_noticed() {
    weir_models::must_fail("shown_relaxed", "Causality violation");
}

#[test]
#[ignore = "must fail: `means_of_two_calls_are_noticed` runs it"]
fn set_outside() {
    switched_on_twice(Flaw::SetOutside);
}

#[test]
fn means_of_two_calls_are_noticed() {
    weir_models::must_fail("set_outside", "the two words are of two calls");
}
