//! Waiting for a word to change: all that a lock needs, and a bounded wait.

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
    /// [`Wait::wait`] for `ns` at most. A platform without it does not wait at all: then allocations are not throttled.
    fn wait_at_most(&self, word: &AtomicU32, expected: u32, ns: u64) {
        let _ = (word, expected, ns);
    }
    /// Wakes all that sleep on `word` in [`Wait::wait_at_most`].
    fn wake_all(&self, word: &AtomicU32) {
        let _ = word;
    }
}
