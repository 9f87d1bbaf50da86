//! Which allocation is sampled: each thread counts the bytes that it allocates down to its next sample.
//!
//! Fast paths written by hand take small sizes off by themselves, in one instruction, and come here once the count is below 0.
//! Bytes that take another path are counted here. A signal handler that allocates between a load of the count and its store may
//! have its bytes forgotten. Then a sample comes a few bytes later, no more.
//!
//! A count goes on after sampling was switched off and on again, or to another mean. The thread follows the new mean from its
//! next sample on. Until then its samples have the weights of the mean with which they were drawn.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::profile::interval::{charge, draw, next_random};
use weir_core::profile::pace;

use crate::arch::thread;
use crate::os::clock;
use crate::os::thread_block::{self, Sampling};
use crate::platform::statics::TUNABLES;
use crate::profile::switch;

/// Processor time that the process's samples may take, ns ([`pace`]).
static CREDIT: AtomicU64 = AtomicU64::new(pace::BURST);
/// Bytes that the process's samples stand for.
static SAMPLED: AtomicU64 = AtomicU64::new(0);

/// An allocation that is to be sampled. Until this is dropped, what the thread allocates is not.
pub struct Drawn {
    thread: Sampling,
    /// The mean with which it was drawn.
    pub mean: u64,
    /// A random number.
    pub random: u64,
    began: u64,
}

/// Counts an allocation, unless a fast path has (`is_counted`); whether it is to be sampled.
#[cold]
pub fn sample(size: usize, is_counted: bool) -> Option<Drawn> {
    let (thread, setting) = (thread_block::sampling(), switch::mean());
    if setting == 0 || thread.is_inside.load(Relaxed) != 0 || thread_block::is_own_thread() {
        return None;
    }
    let mut state = thread.random.load(Relaxed);
    if state == 0 {
        // The thread's first: the count has been 0 so far, and means nothing.
        let now = clock::thread_cpu_ns();
        state = seed();
        thread.mean.store(setting, Relaxed);
        thread.sampled.store(now, Relaxed);
        thread.countdown.store(draw(next_random(&mut state), setting).saturating_sub(charge(size)), Relaxed);
        thread.random.store(state, Relaxed);
    } else if !is_counted {
        thread.countdown.store(thread.countdown.load(Relaxed).saturating_sub(charge(size)), Relaxed);
    }
    if thread.countdown.load(Relaxed) >= 0 {
        return None;
    }
    thread.is_inside.store(1, Relaxed);
    let random = next_random(&mut state);
    thread.random.store(state, Relaxed);
    let mean = thread.mean.load(Relaxed);
    Some(Drawn { thread, mean, random, began: clock::thread_cpu_ns() })
}

impl Drop for Drawn {
    /// Draws the next one.
    fn drop(&mut self) {
        let Self { thread, mean, began, .. } = self;
        // Samples may have been switched off meanwhile.
        let setting = Some(switch::mean()).filter(|&setting| setting != 0).unwrap_or(*mean);
        let (now, last) = (clock::thread_cpu_ns(), thread.sampled.load(Relaxed));
        // In a forked child the clock began anew.
        let (took, since) = (now.saturating_sub(*began), began.checked_sub(last).unwrap_or(*began));
        let before = SAMPLED.fetch_add(*mean, Relaxed).saturating_add(*mean);
        let next = pace::mean(setting, spend(took, since), before);
        let mut state = thread.random.load(Relaxed);
        thread.countdown.store(draw(next_random(&mut state), next), Relaxed);
        thread.random.store(state, Relaxed);
        thread.mean.store(next, Relaxed);
        thread.sampled.store(now, Relaxed);
        thread.is_inside.store(0, Relaxed);
    }
}

/// Counts a sample that `took` so long, so long after the thread's one before; the credit that is left.
fn spend(took: u64, since: u64) -> u64 {
    let percent = TUNABLES.profile_percent.get();
    let after = |credit| pace::credit_after(credit, percent, took, since);
    let before = CREDIT.fetch_update(Relaxed, Relaxed, |credit| Some(after(credit)));
    before.map_or(pace::BURST, after)
}

/// A state that is another for each thread.
fn seed() -> u64 {
    // Two rounds of a product and a shift spread both numbers over all bits (the factor is 2^64 over the golden ratio).
    let mix = |number: u64| {
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    };
    mix(mix(clock::monotonic_ns()) ^ thread::thread_pointer() as u64).max(1)
}
