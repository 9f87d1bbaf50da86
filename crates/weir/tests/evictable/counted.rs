//! Values that count how many of them there are, and that tell what they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};

/// How many there are.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicIsize>);

impl Count {
    pub fn get(&self) -> isize {
        self.0.load(SeqCst)
    }

    pub fn make(&self, number: u64) -> Counted {
        self.0.fetch_add(1, SeqCst);
        Counted { number, is_alive: true, count: self.clone() }
    }
}

/// One of them. Dropped twice it is noticed.
pub struct Counted {
    pub number: u64,
    is_alive: bool,
    count: Count,
}

impl Counted {
    /// The number that was put in; fails if it was dropped.
    pub fn check(&self) -> u64 {
        assert!(self.is_alive, "value {} was dropped", self.number);
        self.number
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(std::mem::replace(&mut self.is_alive, false), "value {} is dropped twice", self.number);
        self.count.0.fetch_sub(1, SeqCst);
    }
}
