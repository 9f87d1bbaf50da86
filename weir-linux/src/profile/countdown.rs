//! Which allocation is sampled: each thread counts the bytes that it allocates down to its next sample.
//!
//! Fast paths written by hand take small sizes off by themselves, in one instruction, and come here once the count is below 0;
//! what takes another path is counted here. A signal handler that allocates between a load of the count and its store may have
//! its bytes forgotten: a sample comes a few bytes later, no more.
//!
//! A count goes on after sampling was switched off and on again, or to another mean: the thread follows the new mean from its
//! next sample on.

use core::sync::atomic::Ordering::Relaxed;
use weir_core::profile::interval::{charge, draw, next_random};

use crate::os::clock;
use crate::os::thread_block::{self, Sampling};
use crate::profile::switch;

/// Counts an allocation, unless a fast path has (`is_counted`). A random number if it is to be sampled.
#[cold]
pub fn sample(size: usize, is_counted: bool) -> Option<u64> {
    let (thread, mean) = (thread_block::sampling(), switch::mean());
    if mean == 0 || thread.is_inside.load(Relaxed) != 0 || thread_block::is_own_thread() {
        return None;
    }
    let mut state = thread.random.load(Relaxed);
    if state == 0 {
        // The thread's first: the count has been 0 so far, and means nothing.
        state = seed();
        thread.countdown.store(draw(next_random(&mut state), mean).saturating_sub(charge(size)), Relaxed);
        thread.random.store(state, Relaxed);
    } else if !is_counted {
        thread.countdown.store(thread.countdown.load(Relaxed).saturating_sub(charge(size)), Relaxed);
    }
    if thread.countdown.load(Relaxed) >= 0 {
        return None;
    }
    thread.countdown.store(draw(next_random(&mut state), mean), Relaxed);
    let random = next_random(&mut state);
    thread.random.store(state, Relaxed);
    Some(random)
}

/// A state that is another for each thread.
fn seed() -> u64 {
    // Two rounds of a product and a shift spread both numbers over all bits (the factor is 2^64 over the golden ratio).
    let mix = |number: u64| {
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    };
    mix(mix(clock::monotonic_ns()) ^ thread_block::thread_pointer() as u64).max(1)
}

/// Marks the calling thread while it takes a sample: what it allocates until the mark is dropped is not sampled.
pub struct Inside(Sampling);

impl Inside {
    /// Marks the thread.
    pub fn enter() -> Self {
        let thread = thread_block::sampling();
        thread.is_inside.store(1, Relaxed);
        Self(thread)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.is_inside.store(0, Relaxed);
    }
}
