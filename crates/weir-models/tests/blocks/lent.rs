//! Blocks that are lent to a CPU (`blocks/lent.rs`, its own source) on a model checker's atomics.
//!
//! What holds, whatever the order of the threads' steps:
//! - A block has one owner at a time: a thread, or the table. It sees what the owner before it wrote.
//! - Of two frees of a block one wins, and the other learns that it is wrong.
//! - What a thread takes is as long as it asked for, although another block came to the same address.
//! - No block is lost: once lent no more, it is freed in the table.
//!
//! Mirrored from `lend.rs` and `map.rs`: a free on the CPU and else in the table, `lend` and `settled`. The table is a lock
//! over what is in use. Each model is run with a flaw as well, and must notice it.
#![cfg(loom)]

mod base {
    pub mod run {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Run {
            pub addr: usize,
            pub len: usize,
        }
    }

    pub mod units {
        pub const PAGE: usize = 4096;
    }
}

mod platform {
    pub use weir_models::sync;
}

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../../weir-core/src/blocks/lent.rs"]
mod lent;

mod blocks {
    use super::base::run::Run;
    use super::base::units::PAGE;
    use super::lent::{Hints, MOST_FREES, Ways, Withdrawn};
    use loom::cell::UnsafeCell;
    use loom::sync::Mutex;

    /// Flaw of a thread.
    #[derive(Clone, Copy, PartialEq)]
    pub enum Flaw {
        None,
        /// A free in the table looks whether the block is free, and does not exchange.
        Looked,
        /// The length is read apart from the word.
        LengthApart,
        /// A block that is lent no more is not found in the table.
        Forgotten,
    }

    /// Places, at any of which a block may be: one more than there are words.
    pub const PLACES: usize = 5;

    pub struct Blocks {
        ways: Ways<1, 4>,
        flaw: Flaw,
        /// Lengths, in pages, of the blocks in use; 0: none is there.
        table: Mutex<[usize; PLACES]>,
        /// What their memory holds: their length while they are mapped.
        memory: [UnsafeCell<usize>; PLACES],
        /// Length of the block that is lent, for a flaw.
        apart: loom::sync::atomic::AtomicUsize,
    }

    const HINTS: Hints = Hints { resident: 0, surprises: 0, frees: MOST_FREES };

    fn run(place: usize, pages: usize) -> Run {
        Run { addr: (place + 1) * PAGE, len: pages * PAGE }
    }

    impl Blocks {
        pub fn new(flaw: Flaw) -> Self {
            Self {
                ways: Ways::new(),
                flaw,
                table: Mutex::new([0; PLACES]),
                memory: core::array::from_fn(|_| UnsafeCell::new(0)),
                apart: loom::sync::atomic::AtomicUsize::new(0),
            }
        }

        /// The owner uses its block, as one who is alone.
        pub fn touch(&self, place: usize) -> usize {
            // SAFETY: the checker fails where another thread uses the cell at this time, which is what is tested.
            self.memory[place].with_mut(|memory| unsafe { *memory })
        }

        fn set(&self, place: usize, pages: usize) {
            // SAFETY: as in `touch`.
            self.memory[place].with_mut(|memory| unsafe { *memory = pages });
        }

        /// Hands a block out that is lent, if it can be.
        pub fn lend(&self, place: usize, pages: usize) {
            let mut table = self.table.lock().unwrap();
            self.settle(&mut table);
            self.set(place, pages);
            table[place] = pages;
            self.apart.store(pages, loom::sync::atomic::Ordering::SeqCst);
            if let Ok(Some(before)) = self.ways.lend(run(place, pages), HINTS, 0)
                && self.flaw == Flaw::Forgotten
            {
                table[before.run().addr / PAGE - 1] = 0;
            }
        }

        /// Takes the free block, if it has so many pages at least: where it is.
        pub fn take(&self, pages: usize) -> Option<usize> {
            let apart = self.apart.load(loom::sync::atomic::Ordering::SeqCst);
            let is_apart = self.flaw == Flaw::LengthApart;
            let taken = self.ways.take(|run| if is_apart { apart >= pages } else { run.len >= pages * PAGE })?;
            let place = taken.addr / PAGE - 1;
            assert!(self.touch(place) >= pages, "the block is shorter than it seemed");
            Some(place)
        }

        /// Frees a block: on its CPU, or in the table. `false`: the free is wrong.
        pub fn free(&self, place: usize, is_on_cpu: bool) -> bool {
            let addr = run(place, 0).addr;
            if is_on_cpu && self.ways.free(addr, 0).is_some() {
                return true;
            }
            let mut table = self.table.lock().unwrap();
            if self.flaw == Flaw::Looked {
                if self.ways.is_free(addr) {
                    return false;
                }
            } else if self.ways.withdraw(addr) == Withdrawn::Free {
                return false;
            }
            self.unmap(&mut table, place)
        }

        fn unmap(&self, table: &mut [usize; PLACES], place: usize) -> bool {
            if core::mem::take(&mut table[place]) == 0 {
                return false;
            }
            self.set(place, 0);
            true
        }

        fn settle(&self, table: &mut [usize; PLACES]) {
            while let Some(lent) = self.ways.settle() {
                assert!(self.unmap(table, lent.run().addr / PAGE - 1), "what is lent is in the table");
            }
        }

        /// Frees what is free on the CPU; the blocks in use that are left.
        pub fn settled(&self) -> usize {
            let mut table = self.table.lock().unwrap();
            self.settle(&mut table);
            table.iter().filter(|&&pages| pages > 0).count()
        }
    }
}

use blocks::{Blocks, Flaw, PLACES};
use loom::sync::Arc;
use loom::thread;

/// A block is handed out and freed again and again, while another thread of the CPU takes it and reclaim frees it.
fn one_owner(flaw: Flaw) {
    weir_models::check(3, move || {
        let blocks = Arc::new(Blocks::new(flaw));
        blocks.lend(0, 1);
        assert!(blocks.free(0, true));
        let taker = blocks.clone();
        let taker = thread::spawn(move || {
            if let Some(place) = taker.take(1) {
                taker.touch(place);
                assert!(taker.free(place, true), "a free of a block in use fails");
            }
        });
        let reclaim = blocks.clone();
        let reclaim = thread::spawn(move || reclaim.settled());
        if let Some(place) = blocks.take(1) {
            blocks.touch(place);
            assert!(blocks.free(place, false), "a free of a block in use fails");
        }
        taker.join().unwrap();
        reclaim.join().unwrap();
        assert_eq!(blocks.settled(), 0, "a block is lost");
    });
}

/// Two threads free one block, one of them on its CPU.
fn freed_twice(flaw: Flaw) {
    weir_models::check(3, move || {
        let blocks = Arc::new(Blocks::new(flaw));
        blocks.lend(0, 1);
        let other = blocks.clone();
        let other = thread::spawn(move || other.free(0, true));
        let first = blocks.free(0, false);
        assert!(first != other.join().unwrap(), "one free wins, and one is wrong");
        assert_eq!(blocks.settled(), 0);
    });
}

/// The block goes while a thread is about to take it, and a shorter one comes to its address.
fn another_at_its_place(flaw: Flaw) {
    weir_models::check(3, move || {
        let blocks = Arc::new(Blocks::new(flaw));
        blocks.lend(0, 2);
        assert!(blocks.free(0, true));
        let taker = blocks.clone();
        let taker = thread::spawn(move || taker.take(2).is_some());
        blocks.settled();
        let is_mine = blocks.take(2).is_some();
        if !is_mine && blocks.settled() == 0 {
            blocks.lend(0, 1);
            assert!(blocks.free(0, true));
        }
        taker.join().unwrap();
    });
}

/// A block takes the place of one whose owner frees it at that time.
fn replaced(flaw: Flaw) {
    weir_models::check(3, move || {
        let blocks = Arc::new(Blocks::new(flaw));
        let others = 1..PLACES - 1;
        (0..PLACES - 1).for_each(|place| blocks.lend(place, 1));
        let owner = blocks.clone();
        let owner = thread::spawn(move || assert!(owner.free(0, true), "a free of a block in use fails"));
        blocks.lend(PLACES - 1, 1);
        assert!(blocks.free(PLACES - 1, true), "a free of a block in use fails");
        owner.join().unwrap();
        others.for_each(|place| assert!(blocks.free(place, true)));
        assert_eq!(blocks.settled(), 0, "a block is lost");
    });
}

/// A block takes the place of one that a thread takes at that time, and is freed.
fn taken_and_replaced(flaw: Flaw) {
    weir_models::check(3, move || {
        let blocks = Arc::new(Blocks::new(flaw));
        let others = 1..PLACES - 1;
        (0..PLACES - 1).for_each(|place| blocks.lend(place, 1));
        assert!(blocks.free(0, true));
        let taker = blocks.clone();
        let taker = thread::spawn(move || taker.take(1));
        let replacer = blocks.clone();
        let replacer = thread::spawn(move || {
            replacer.lend(PLACES - 1, 1);
            assert!(replacer.free(PLACES - 1, true), "a free of a block in use fails");
        });
        if let Some(place) = taker.join().unwrap() {
            assert!(blocks.free(place, true), "a free of a block in use fails");
        }
        replacer.join().unwrap();
        others.for_each(|place| assert!(blocks.free(place, true)));
        assert_eq!(blocks.settled(), 0, "a block is lost");
    });
}

#[test]
fn a_block_that_replaces_another_is_found() {
    taken_and_replaced(Flaw::None);
}

#[test]
fn a_block_has_one_owner() {
    one_owner(Flaw::None);
}

#[test]
fn of_two_frees_one_wins() {
    freed_twice(Flaw::None);
}

#[test]
fn what_is_taken_is_as_long_as_it_seemed() {
    another_at_its_place(Flaw::None);
}

#[test]
fn what_is_lent_no_more_is_freed_in_the_table() {
    replaced(Flaw::None);
}

#[test]
fn a_free_that_only_looks_is_noticed() {
    weir_models::must_fail("one free wins, and one is wrong", || freed_twice(Flaw::Looked));
}

#[test]
fn a_length_beside_the_word_is_noticed() {
    weir_models::must_fail("the block is shorter than it seemed", || another_at_its_place(Flaw::LengthApart));
}

#[test]
fn a_block_that_is_forgotten_is_noticed() {
    weir_models::must_fail("a free of a block in use fails", || replaced(Flaw::Forgotten));
}
