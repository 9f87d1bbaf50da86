//! Waiting for a word to change: all that a lock needs, and a bounded wait.

use core::sync::atomic::AtomicU32;

/// Sleeps and wakes, and keeps a word for each thread.
pub trait Wait {
    /// Sleeps while `word` holds `expected` (or for no reason).
    fn wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes one sleeper on `word`.
    fn wake(&self, word: &AtomicU32);
    /// Sleeps while `word` holds `expected` (or for no reason), for `ns` at most; for ever where that is `None`. For what
    /// may take as long as it likes, as a program's callback does. A platform without callbacks does not sleep.
    fn wait_for(&self, word: &AtomicU32, expected: u32, ns: Option<u64>) {
        let _ = (word, expected, ns);
    }
    /// Wakes all sleepers on `word`.
    fn wake_all(&self, word: &AtomicU32) {
        self.wake(word);
    }
    /// In debug builds: the calling thread has taken the lock at an address, or is about to give it back. For tests that count.
    fn lock_turn(&self, rank: u32, lock: usize, is_taken: bool) {
        let _ = (rank, lock, is_taken);
    }
    /// A word of the calling thread, in which [`super::lock`] keeps the ranks that it holds. `None`: the ranks are not
    /// kept; then `fork` must not be called.
    fn held_ranks(&self) -> Option<&AtomicU32>;
}
