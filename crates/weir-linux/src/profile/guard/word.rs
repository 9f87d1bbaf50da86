//! The word of a slot: who may write the slot and change its page.
//!
//! **Protocol.** A slot is free, busy or live. The thread that takes it (free to busy) or gives up its block (live to busy)
//! changes the word by one exchange, which one thread wins. That one alone uses the slot until it stores the next state. The
//! exchange acquires what the store before it released: the next user finds the page as the one before left it. A free slot's
//! word has the number of the free that came last. So the exchange fails where the slot was used and freed since the look. The
//! smallest word is that of the slot that was freed longest ago.

use crate::os::sync::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// In the word, below the number of the free that came last.
const STATE: u64 = 3;
const FREE: u64 = 0;
const BUSY: u64 = 1;
const LIVE: u64 = 2;

/// Zero bytes are one that is free and was never used.
pub(super) struct Word(AtomicU64);

impl Word {
    /// A slot's word for a model checker, of which an atomic is more than its bytes.
    #[cfg(loom)]
    #[allow(dead_code, reason = "the model alone makes one")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// If the slot is free: what [`Word::take`] is to find, the less the longer ago it was freed.
    pub fn free(&self) -> Option<u64> {
        let seen = self.0.load(Relaxed);
        (seen & STATE == FREE).then_some(seen)
    }

    /// Takes the slot for a block, if it is still as it was `seen`.
    pub fn take(&self, seen: u64) -> bool {
        self.0.compare_exchange(seen, BUSY, AcqRel, Relaxed).is_ok()
    }

    /// A block is in the slot, which the caller took.
    pub fn make_live(&self) {
        self.0.store(LIVE, Release);
    }

    /// Whether a block is in the slot that the program may use.
    pub fn is_live(&self) -> bool {
        self.0.load(Acquire) & STATE == LIVE
    }

    /// Takes the slot for the free of its block; `false`: there is none, or another thread was faster.
    pub fn take_live(&self) -> bool {
        self.0.compare_exchange(LIVE, BUSY, AcqRel, Relaxed).is_ok()
    }

    /// The slot, which the caller took, is free; `number` is that of the free, from 1 on.
    pub fn give(&self, number: u64) {
        self.0.store(number << 2 | FREE, Release);
    }
}
