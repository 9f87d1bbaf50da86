//! Waiting for a word to change: all that a lock needs.

use core::sync::atomic::AtomicU32;

/// Sleeps and wakes, and keeps a word for each thread.
pub trait Wait {
    /// Sleeps while `word` holds `expected` (or for no reason).
    fn wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes one sleeper on `word`.
    fn wake(&self, word: &AtomicU32);
    /// A word of the calling thread, in which [`super::lock`] keeps the ranks that it holds. `None`: the ranks are not
    /// kept; then `fork` must not be called.
    fn held_ranks(&self) -> Option<&AtomicU32>;
}
