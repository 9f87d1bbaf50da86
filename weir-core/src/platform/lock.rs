//! The engine's lock: one word, a short spin, then a sleep in the platform. A thread's ranks are noted, so that a `fork`
//! in a signal handler knows that it interrupted a holder, and checked in debug builds.
//! The ranks are in [`super::rank`].

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sync::{AtomicU32, SPINS, constructor, spin_loop};
use super::wait::Wait;

/// In [`Wait::held_ranks`], below the ranks: the thread takes, holds or gives back all locks there are, for `fork`.
pub(crate) const FROZEN: u32 = 1;
/// The unit of a count below the ranks: forks of signal handlers that found the thread holding something.
pub(crate) const SKIPPED: u32 = 2;
/// Where that count is.
pub(crate) const SKIPPED_COUNT: u32 = 0xfe;
/// The bit of rank 0.
const RANK_0: u32 = 1 << 8;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A value behind a lock of rank `RANK`.
pub struct Lock<T, const RANK: u32> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and only one guard exists at a time (`word`).
unsafe impl<T, const RANK: u32> Sync for Lock<T, RANK> {}

impl<T, const RANK: u32> Lock<T, RANK> {
    constructor! {
        /// An open lock.
        pub fn new(value: T) -> Self {
            Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock, waiting for it if it must.
    pub fn lock<'a, P: Wait>(&'a self, platform: &'a P) -> Guard<'a, T, P, RANK> {
        self.acquire(platform);
        Guard { lock: self, platform }
    }

    /// Takes the lock if it is free now.
    pub fn try_lock<'a, P: Wait>(&'a self, platform: &'a P) -> Option<Guard<'a, T, P, RANK>> {
        note_taken(platform, RANK);
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            note_given(platform, RANK);
            return None;
        }
        Some(Guard { lock: self, platform })
    }

    /// Takes the lock with no guard, to be given back by [`Lock::release`]: for `fork`, which holds all of them.
    pub fn acquire<P: Wait>(&self, platform: &P) {
        // Noted first: a signal handler between the two is to find it held rather than free.
        note_taken(platform, RANK);
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.acquire_slow(platform);
        }
    }

    #[cold]
    fn acquire_slow<P: Wait>(&self, platform: &P) {
        for _ in 0..SPINS {
            if self.word.load(Relaxed) == FREE && self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                return;
            }
            spin_loop();
        }
        while self.word.swap(CONTENDED, Acquire) != FREE {
            platform.wait(&self.word, CONTENDED);
        }
    }

    /// Gives back what [`Lock::acquire`] took.
    ///
    /// # Safety
    /// The caller holds the lock and no guard of it.
    pub unsafe fn release<P: Wait>(&self, platform: &P) {
        if self.word.swap(FREE, Release) == CONTENDED {
            platform.wake(&self.word);
        }
        note_given(platform, RANK);
    }
}

/// Holds a [`Lock`].
pub struct Guard<'a, T, P: Wait, const RANK: u32> {
    lock: &'a Lock<T, RANK>,
    platform: &'a P,
}

impl<T, P: Wait, const RANK: u32> Deref for Guard<'_, T, P, RANK> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (`Lock::word`), so the value is not aliased.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, P: Wait, const RANK: u32> DerefMut for Guard<'_, T, P, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (`Lock::word`), so the value is not aliased.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, P: Wait, const RANK: u32> Drop for Guard<'_, T, P, RANK> {
    fn drop(&mut self) {
        // SAFETY: the guard exists, so the lock is held, by it alone.
        unsafe { self.lock.release(self.platform) }
    }
}

#[inline]
fn note_taken<P: Wait>(platform: &P, rank: u32) {
    if let Some(held) = platform.held_ranks() {
        let before = held.load(Relaxed);
        // Fork takes every lock of a rank, so equal ranks are allowed; a higher one already held is the error.
        debug_assert!(
            before < RANK_0 << (rank + 1),
            "lock of rank {rank} taken under a higher one (held: {before:#b})"
        );
        held.store(before | RANK_0 << rank, Relaxed);
    }
}

#[inline]
fn note_given<P: Wait>(platform: &P, rank: u32) {
    if let Some(held) = platform.held_ranks() {
        held.store(held.load(Relaxed) & !(RANK_0 << rank), Relaxed);
    }
}
