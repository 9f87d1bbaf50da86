//! The engine's lock, for models of what lies under it: the checker's mutex behind the interface of `platform/lock.rs`, which has
//! a model of its own.

use std::cell::{Cell, UnsafeCell};
use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::sync::{Mutex, MutexGuard};

thread_local! {
    static OPEN: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Lets locks of `rank` exclude nobody, in the models that this thread runs next: to see that the checker notices. `None`: all do.
pub fn leave_open(rank: Option<u32>) {
    OPEN.set(rank);
}

/// A value behind a lock of rank `RANK`.
pub struct Lock<T, const RANK: u32> {
    mutex: Mutex<()>,
    /// Written by whoever comes and goes where the lock excludes nobody, so that the checker tries every order of these.
    passed: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: threads get at the value through a guard, of which the mutex admits one at a time. Where the lock is left open the
// checker still runs one thread at a time.
unsafe impl<T: Send, const RANK: u32> Sync for Lock<T, RANK> {}

impl<T, const RANK: u32> Lock<T, RANK> {
    /// An open lock.
    pub fn new(value: T) -> Self {
        Self { mutex: Mutex::new(()), passed: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock.
    pub fn lock<'a, P>(&'a self, _platform: &'a P) -> Guard<'a, T, P, RANK> {
        if OPEN.get() == Some(RANK) {
            self.passed.fetch_add(1, SeqCst);
            return Guard { lock: self, held: None, platform: PhantomData };
        }
        Guard { lock: self, held: Some(self.mutex.lock().unwrap()), platform: PhantomData }
    }

    /// Takes the lock if it is free now.
    pub fn try_lock<'a, P>(&'a self, _platform: &'a P) -> Option<Guard<'a, T, P, RANK>> {
        let held = self.mutex.try_lock().ok()?;
        Some(Guard { lock: self, held: Some(held), platform: PhantomData })
    }
}

/// The turn of a rank in a `fork`: there is none, as no model forks.
pub struct RankTurn<'p, P>(&'p P, Infallible);

impl<P> RankTurn<'_, P> {
    /// For one lock.
    pub fn lock<T, const RANK: u32>(&self, _: &Lock<T, RANK>) {}

    /// For all locks of a rank.
    pub fn locks<'l, T: 'l, const RANK: u32, I: Iterator<Item = &'l Lock<T, RANK>>>(&self, _: impl FnOnce() -> I) {}
}

/// Holds a [`Lock`].
pub struct Guard<'a, T, P, const RANK: u32> {
    lock: &'a Lock<T, RANK>,
    held: Option<MutexGuard<'a, ()>>,
    platform: PhantomData<&'a P>,
}

impl<T, P, const RANK: u32> Deref for Guard<'_, T, P, RANK> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: as of `Lock`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, P, const RANK: u32> DerefMut for Guard<'_, T, P, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as of `Lock`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, P, const RANK: u32> Drop for Guard<'_, T, P, RANK> {
    fn drop(&mut self) {
        if self.held.is_none() {
            self.lock.passed.fetch_add(1, SeqCst);
        }
    }
}
