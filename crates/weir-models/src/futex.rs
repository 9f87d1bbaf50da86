//! A futex: the word is looked at and the thread put to sleep in one step, as the kernel does. It knows no time, so that a sleep
//! which only a timeout would end is a deadlock.

use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::sync::{Condvar, Mutex};

/// See the module. All words have one queue of sleepers.
pub struct Futex {
    queue: Mutex<()>,
    sleepers: Condvar,
    /// The word is not looked at, to see that the checker notices.
    is_blind: bool,
}

impl Futex {
    /// Nobody sleeps.
    #[allow(clippy::new_without_default, reason = "a model's objects are made inside of the model")]
    pub fn new() -> Self {
        Self { queue: Mutex::new(()), sleepers: Condvar::new(), is_blind: false }
    }

    /// One that does not look at the word.
    pub fn blind() -> Self {
        Self { is_blind: true, ..Self::new() }
    }

    /// Sleeps while `word` holds `expected`.
    pub fn wait(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if self.is_blind || word.load(SeqCst) == expected {
            drop(self.sleepers.wait(queue).unwrap());
        }
    }

    /// Wakes all sleepers.
    pub fn wake_all(&self) {
        let _queue = self.queue.lock().unwrap();
        self.sleepers.notify_all();
    }
}
