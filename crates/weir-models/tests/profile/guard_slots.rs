//! The slots of guarded blocks (`profile/guard/word.rs`, its own source) on a model checker's atomics.
//!
//! What holds, whatever the order of the threads' steps:
//! - A page is used by one thread at a time. The thread that takes a slot finds the page as the free before it left it (hidden,
//!   empty). The exchange that takes the slot acquires what the store that gave it released.
//! - Of several frees of a block one wins; the others learn that they are double.
//! - A slot that was used and freed between the look and the exchange is not taken by what was seen. The number in the
//!   word is another.
//!
//! Mirrored from `slots.rs` and `blocks.rs`: `take_oldest`, `alloc` and `free`, with a cell for the page that the kernel
//! shows and hides. Each model is run with a flaw as well, and must notice it.
#![cfg(loom)]

mod os {
    pub mod sync {
        /// Zero at first, as the kernel maps it.
        pub use loom::sync::atomic::AtomicU64;
    }
}

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../../weir-linux/src/profile/guard"]
mod guard {
    pub mod word;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use word::Word;

    /// Flaw of a thread.
    #[derive(Clone, Copy, PartialEq)]
    pub enum Flaw {
        None,
        /// The slot is given before its page is hidden.
        GivenFirst,
        /// The slot is live, and handed to a free, before its page is shown.
        LiveFirst,
        /// A free looks whether the block is live, and does not exchange.
        Looked,
    }

    struct Slot {
        word: Word,
        /// Contents of the page: 0 where it is hidden.
        page: UnsafeCell<u32>,
    }

    pub struct Slots<const COUNT: usize> {
        slots: [Slot; COUNT],
        frees: AtomicU64,
        flaw: Flaw,
    }

    impl<const COUNT: usize> Slots<COUNT> {
        pub fn new(flaw: Flaw) -> Self {
            let slot = |_| Slot { word: Word::new(), page: UnsafeCell::new(0) };
            Self { slots: core::array::from_fn(slot), frees: AtomicU64::new(0), flaw }
        }

        /// `slots::take_oldest`, and `blocks::alloc` of it.
        pub fn alloc(&self) -> Option<usize> {
            let free = self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.word.free()?)));
            let (number, seen) = free.min_by_key(|found| found.1)?;
            let slot = &self.slots[number];
            if !slot.word.take(seen) {
                return None;
            }
            if self.flaw == Flaw::LiveFirst {
                slot.word.make_live();
            }
            // SAFETY: the checker fails where another thread uses the cell at this time, which is what is tested.
            let before = slot.page.with_mut(|page| unsafe { page.replace(1) });
            assert_eq!(before, 0, "the page holds another block");
            if self.flaw != Flaw::LiveFirst {
                slot.word.make_live();
            }
            Some(number)
        }

        /// `blocks::free`; `false`: a double free.
        pub fn free(&self, number: usize) -> bool {
            let slot = &self.slots[number];
            let is_taken = if self.flaw == Flaw::Looked { slot.word.is_live() } else { slot.word.take_live() };
            if !is_taken {
                return false;
            }
            let given = self.frees.fetch_add(1, Relaxed) + 1;
            if self.flaw == Flaw::GivenFirst {
                slot.word.give(given);
            }
            // SAFETY: as in `alloc`.
            let before = slot.page.with_mut(|page| unsafe { page.replace(0) });
            assert_eq!(before, 1, "the page of a live block is hidden");
            if self.flaw != Flaw::GivenFirst {
                slot.word.give(given);
            }
            true
        }
    }
}

use guard::{Flaw, Slots};
use loom::sync::Arc;
use loom::thread;

/// Two threads use one slot, or two, one block after the other.
fn taken_in_turn<const COUNT: usize>(flaw: Flaw) {
    weir_models::check(3, move || {
        let slots = Arc::new(Slots::<COUNT>::new(flaw));
        let other = slots.clone();
        let other = thread::spawn(move || use_one(&other));
        use_one(&slots);
        use_one(&slots);
        other.join().unwrap();
        // Nothing is lost: all slots can be had, and no more.
        for _ in 0..COUNT {
            assert!(slots.alloc().is_some());
        }
        assert!(slots.alloc().is_none());
    });
}

fn use_one<const COUNT: usize>(slots: &Slots<COUNT>) {
    if let Some(block) = slots.alloc() {
        assert!(slots.free(block), "a free of a live block fails");
    }
}

/// Two threads free one block.
fn freed_twice(flaw: Flaw) {
    weir_models::check(3, move || {
        let slots = Arc::new(Slots::<1>::new(flaw));
        let block = slots.alloc().unwrap();
        let other = slots.clone();
        let other = thread::spawn(move || other.free(block));
        let first = slots.free(block);
        assert!(first != other.join().unwrap(), "one free wins, and one is double");
    });
}

/// A thread frees by a wrong pointer what another one is about to be given.
fn freed_too_early(flaw: Flaw) {
    weir_models::check(3, move || {
        let slots = Arc::new(Slots::<1>::new(flaw));
        let other = slots.clone();
        let other = thread::spawn(move || other.alloc());
        let is_freed = slots.free(0);
        let block = other.join().unwrap().unwrap();
        assert_eq!(slots.free(block), !is_freed);
    });
}

#[test]
fn one_thread_at_a_time_uses_a_page() {
    taken_in_turn::<1>(Flaw::None);
    taken_in_turn::<2>(Flaw::None);
}

#[test]
fn of_two_frees_one_wins() {
    freed_twice(Flaw::None);
}

#[test]
fn a_wrong_free_finds_a_whole_block_or_none() {
    freed_too_early(Flaw::None);
}

#[test]
fn a_slot_given_before_its_page_is_hidden_is_noticed() {
    weir_models::must_fail("Causality violation", || taken_in_turn::<1>(Flaw::GivenFirst));
}

#[test]
fn a_free_that_only_looks_is_noticed() {
    weir_models::must_fail("Causality violation", || freed_twice(Flaw::Looked));
}

#[test]
fn a_block_that_is_live_before_its_page_is_shown_is_noticed() {
    weir_models::must_fail("Causality violation", || freed_too_early(Flaw::LiveFirst));
}
