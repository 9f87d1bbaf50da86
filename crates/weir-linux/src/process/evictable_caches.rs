//! What evictable caches (crate `weir`) need of the process: locks, sleep, `fork`, by plain functions.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weir_core::platform::lock::{Guard, Lock, holds};
use weir_core::platform::rank;

use super::evictable_list;
use super::heap::HEAP;
use crate::arch::thread;
use crate::os::clock::coarse_ns;
use crate::os::futex::{futex_wait, futex_wake_at};
use crate::os::process;
use crate::os::tasks::sched_yield;
use crate::platform::linux::Linux;
use crate::platform::machine;

pub use super::evictable_list::{ForkCalls, ForkNode};
pub use weir_core::telemetry::tables::EvictableRow;

/// A lock of a cache's.
pub type CacheLock<T, const RANK: u32> = Lock<T, RANK>;
/// Holds one.
pub type CacheGuard<'a, T, const RANK: u32> = Guard<'a, T, Linux, RANK>;
pub use rank::{EVICTABLE_DUEL, EVICTABLE_SHARD};

/// Adds a cache to those that a `fork` is to find whole.
///
/// # Safety
/// The node stays where it is, with the cache that its calls expect around it, until [`remove`].
pub unsafe fn add(node: NonNull<ForkNode>) {
    // SAFETY: the caller keeps the node.
    unsafe { evictable_list::add(platform(), node) }
}

/// Takes a cache out.
///
/// # Safety
/// The node was added.
pub unsafe fn remove(node: NonNull<ForkNode>) {
    // SAFETY: the caller's node is in the list.
    unsafe { evictable_list::remove(platform(), node) }
}

/// The platform that caches' locks wait on.
#[inline]
pub fn platform() -> &'static Linux {
    HEAP.engine().platform()
}

/// A number of the calling thread that no other living thread has; a forked child's thread keeps it.
#[inline]
pub fn this_thread() -> usize {
    thread::thread_pointer()
}

/// Sleeps while `word` is `seen`, or for no reason.
pub fn sleep(word: &AtomicU32, seen: u32) {
    let _ = futex_wait(word, seen, None);
}

/// [`sleep`], for what the thread `runner` ([`this_thread`]) computes. `false`: that thread waits for this one, directly or
/// through others, and the call returns at once.
pub fn sleep_for(word: &AtomicU32, seen: u32, runner: usize) -> bool {
    evictable_list::wait_for(platform(), word, seen, runner)
}

/// Whether the calling thread holds a shard's lock.
pub fn holds_shard() -> bool {
    holds(platform(), EVICTABLE_SHARD)
}

/// Wakes all who sleep on `word`.
pub fn wake_all(word: &AtomicU32) {
    wake(word);
}

/// The time by which entries end, ns: that of the platform's clock, as of its last tick.
pub fn now() -> u64 {
    coarse_ns()
}

/// Two random numbers.
pub fn random() -> [usize; 2] {
    process::random_words()
}

/// The CPUs that there can be.
pub fn cpus() -> usize {
    static CPUS: AtomicU32 = AtomicU32::new(0);
    match CPUS.load(Relaxed) {
        0 => {
            let count = machine::possible_cpus().map_or(1, |(count, _)| count.max(1));
            CPUS.store(u32::try_from(count).unwrap_or(u32::MAX), Relaxed);
            count
        }
        count => count as usize,
    }
}

/// Wakes who sleeps at an address, at which nothing needs to be any more.
pub fn wake(word: *const AtomicU32) {
    let _ = futex_wake_at(word, u32::MAX);
}

/// Lets another thread run.
pub fn yield_now() {
    sched_yield();
}
