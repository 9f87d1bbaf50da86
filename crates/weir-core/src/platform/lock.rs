//! The engine's lock: one word, a short spin, then a sleep in the platform. A thread's ranks are noted, so that a `fork`
//! in a signal handler knows that it interrupted a holder, and checked in debug builds.
//! The ranks are in [`super::rank`].

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::rank;
use super::sync::{AtomicU32, SPINS, constructor, spin_loop};
use super::wait::Wait;

/// In [`Wait::held_ranks`], below the ranks: the thread takes, holds or gives back all locks there are, for `fork`.
pub(crate) const FROZEN: u32 = 1;
/// The unit of a count below the ranks: forks of signal handlers that found the thread holding something.
pub(crate) const SKIPPED: u32 = 2;
/// Where that count is.
pub(crate) const SKIPPED_COUNT: u32 = 0x7e;
/// Beside [`FROZEN`]: no lock was taken, as no other thread can be in the heap.
pub(crate) const ALONE: u32 = 0x80;
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

// SAFETY: threads that share a lock get at the value through a guard. `word` admits one guard at a time, on one thread. So the
// value goes from thread to thread, which `T: Send` allows, and is never shared.
unsafe impl<T: Send, const RANK: u32> Sync for Lock<T, RANK> {}

impl<T, const RANK: u32> Lock<T, RANK> {
    constructor! {
        /// An open lock.
        pub fn new(value: T) -> Self {
            Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock, waiting for it if it must.
    pub fn lock<'a, P: Wait>(&'a self, platform: &'a P) -> Guard<'a, T, P, RANK> {
        check_order(platform, RANK, RANK);
        self.take(platform);
        Guard { lock: self, platform, of_thread: PhantomData }
    }

    /// Takes the lock if it is free now. As this never waits, it is allowed whatever the thread holds.
    pub fn try_lock<'a, P: Wait>(&'a self, platform: &'a P) -> Option<Guard<'a, T, P, RANK>> {
        let before = note_taken(platform, RANK);
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // The thread may hold another lock of this rank: it goes on to count as held.
            note(platform, before);
            return None;
        }
        self.tell(platform, true);
        Some(Guard { lock: self, platform, of_thread: PhantomData })
    }

    /// Takes the lock with no guard, to be given back by [`Lock::release`]: for [`RankTurn`].
    fn acquire<P: Wait>(&self, platform: &P) {
        check_order(platform, RANK, RANK + 1);
        self.take(platform);
    }

    fn take<P: Wait>(&self, platform: &P) {
        // Noted first: a signal handler between the two is to find it held rather than free.
        note_taken(platform, RANK);
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.acquire_slow(platform);
        }
        self.tell(platform, true);
    }

    /// In debug builds the platform hears of each turn.
    #[inline]
    fn tell<P: Wait>(&self, platform: &P, is_taken: bool) {
        if cfg!(debug_assertions) {
            platform.lock_turn(RANK, &raw const self.word as usize, is_taken);
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

    /// The value, for a caller whose [`RankTurn`] took the lock.
    ///
    /// # Safety
    /// The caller holds the lock and no guard of it, and gives it back after the last use of the reference.
    pub unsafe fn held(&self) -> &T {
        // SAFETY: the caller holds the lock, so no guard is there that could change the value.
        unsafe { &*self.value.get() }
    }

    /// Gives back what [`Lock::acquire`] took.
    ///
    /// # Safety
    /// The caller holds the lock and no guard of it.
    unsafe fn release<P: Wait>(&self, platform: &P) {
        self.tell(platform, false);
        let before = self.word.swap(FREE, Release);
        debug_assert!(before != FREE, "the lock {} is given back by a thread that has not taken it", rank::name(RANK));
        if before == CONTENDED {
            platform.wake(&self.word);
        }
        note_given(platform, RANK);
    }
}

/// Holds a [`Lock`].
pub struct Guard<'a, T, P: Wait, const RANK: u32> {
    lock: &'a Lock<T, RANK>,
    platform: &'a P,
    /// Neither sent nor shared: the rank is noted of this thread, and the value need not be `Sync`.
    of_thread: PhantomData<*const T>,
}

impl<T, P: Wait, const RANK: u32> Deref for Guard<'_, T, P, RANK> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `word` admits one guard at a time, and a shared borrow of the guard excludes `deref_mut`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, P: Wait, const RANK: u32> DerefMut for Guard<'_, T, P, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `word` admits one guard at a time, which is exclusively borrowed as long as the reference lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, P: Wait, const RANK: u32> Drop for Guard<'_, T, P, RANK> {
    fn drop(&mut self) {
        // SAFETY: the lock was taken when this guard was made, and `word` admits no second guard until it is given back here.
        unsafe { self.lock.release(self.platform) }
    }
}

/// The turn of a rank, for `fork` and the audit: all of its locks are taken, or given back. Whoever has locks passes them to each
/// turn, and the same ones to both turns of a rank.
pub struct RankTurn<'p, P: Wait> {
    platform: &'p P,
    rank: u32,
    is_last: bool,
}

impl<'p, P: Wait> RankTurn<'p, P> {
    /// Takes the locks of `rank`.
    pub(crate) fn takes(platform: &'p P, rank: u32) -> Self {
        Self { platform, rank, is_last: false }
    }

    /// Gives the locks of `rank` back.
    ///
    /// # Safety
    /// The turn goes to all those that a turn of [`RankTurn::takes`] went to, on this thread or the one that it is the copy of.
    pub(crate) unsafe fn gives_back(platform: &'p P, rank: u32) -> Self {
        Self { platform, rank, is_last: true }
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether this turn gives back what another took.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// For one lock of a rank.
    pub fn lock<T, const RANK: u32>(&self, lock: &Lock<T, RANK>) {
        self.locks(|| core::iter::once(lock));
    }

    /// For all locks of a rank; they are looked for in its turn only.
    pub fn locks<'l, T: 'l, const RANK: u32, I: Iterator<Item = &'l Lock<T, RANK>>>(&self, locks: impl FnOnce() -> I) {
        if self.rank != RANK {
            return;
        }
        for lock in locks() {
            match self.is_last {
                false => lock.acquire(self.platform),
                // SAFETY: as was promised of this turn, one before it took the lock; that made no guard.
                true => unsafe { lock.release(self.platform) },
            }
        }
    }
}

/// Whether the calling thread holds a lock of `rank`.
pub fn holds<P: Wait>(platform: &P, rank: u32) -> bool {
    platform.held_ranks().is_some_and(|held| held.load(Relaxed) & RANK_0 << rank != 0)
}

/// Panics in debug builds if the thread holds a lock of rank `limit` or above as it is about to wait for one of `rank`.
#[inline]
fn check_order<P: Wait>(platform: &P, rank: u32, limit: u32) {
    if cfg!(debug_assertions)
        && let Some(held) = platform.held_ranks()
    {
        let held = held.load(Relaxed);
        assert!(
            held < RANK_0 << limit,
            "the lock {} is taken by a thread that holds {}",
            rank::name(rank),
            rank::name(held.ilog2() - RANK_0.ilog2())
        );
    }
}

/// Notes that the thread holds a lock of `rank`; returns what was noted before.
#[inline]
fn note_taken<P: Wait>(platform: &P, rank: u32) -> u32 {
    let Some(held) = platform.held_ranks() else { return 0 };
    let before = held.load(Relaxed);
    held.store(before | RANK_0 << rank, Relaxed);
    before
}

#[inline]
fn note_given<P: Wait>(platform: &P, rank: u32) {
    if let Some(held) = platform.held_ranks() {
        held.store(held.load(Relaxed) & !(RANK_0 << rank), Relaxed);
    }
}

#[inline]
fn note<P: Wait>(platform: &P, ranks: u32) {
    if let Some(held) = platform.held_ranks() {
        held.store(ranks, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Ranks(AtomicU32);

    impl Wait for Ranks {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {
            unreachable!("no test waits");
        }
        fn wake(&self, _word: &AtomicU32) {}
        fn held_ranks(&self) -> Option<&AtomicU32> {
            Some(&self.0)
        }
    }

    fn lock<const RANK: u32>() -> Lock<u32, RANK> {
        Lock::new(0)
    }

    /// Message to a thread that waits for a lock it may not wait for; `None`: it may.
    fn complaint(f: impl FnOnce()) -> Option<std::string::String> {
        catch_unwind(AssertUnwindSafe(f)).err().map(|said| *said.downcast().unwrap())
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_wrong_order_is_named() {
        let (ranks, zone, depot) = (Ranks(AtomicU32::new(0)), lock::<{ rank::ZONE }>(), lock::<{ rank::DEPOT }>());
        let _zone = zone.lock(&ranks);
        let said = complaint(|| drop(depot.lock(&ranks)));
        assert_eq!(said.as_deref(), Some("the lock DEPOT is taken by a thread that holds ZONE"));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_second_lock_of_a_rank_is_for_those_alone_who_take_all_of_it() {
        let (ranks, first, second) = (Ranks(AtomicU32::new(0)), lock::<{ rank::ZONE }>(), lock::<{ rank::ZONE }>());
        first.acquire(&ranks);
        assert_eq!(complaint(|| second.acquire(&ranks)), None);
        let third = lock::<{ rank::ZONE }>();
        let said = complaint(|| drop(third.lock(&ranks)));
        assert_eq!(said.as_deref(), Some("the lock ZONE is taken by a thread that holds ZONE"));
    }

    #[test]
    fn what_is_tried_for_in_vain_leaves_the_note_of_what_is_held() {
        let (ranks, zone, depot) = (Ranks(AtomicU32::new(0)), lock::<{ rank::ZONE }>(), lock::<{ rank::DEPOT }>());
        let guard = zone.lock(&ranks);
        let noted = ranks.0.load(Relaxed);
        assert!(zone.try_lock(&ranks).is_none());
        assert_eq!(ranks.0.load(Relaxed), noted);
        assert!(depot.try_lock(&ranks).is_some(), "what never waits may be tried in any order");
        assert_eq!(ranks.0.load(Relaxed), noted);
        drop(guard);
        assert_eq!(ranks.0.load(Relaxed), 0);
    }
}
