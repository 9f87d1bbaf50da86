//! The background thread is gone while the program changes itself as a whole ([`crate::threads::changes`]), and another
//! is there after.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::os::clock::monotonic_ns;
use crate::os::futex::pause;
use crate::os::process::getpid;
use crate::os::thread_block::is_own_thread;
use crate::threads::background::{ABSENT, BEGUN, Background, LOOKING, REFUSED, REPLACEMENT, STARTING};
use crate::threads::changes::Suspend;

impl Background {
    /// Makes a call of the program's while there is no background thread.
    ///
    /// ```
    /// assert_eq!(weir_linux::process::heap::BACKGROUND.without_thread(|| 2 + 2), 4);
    /// ```
    pub fn without_thread<R>(&'static self, call: impl FnOnce() -> R) -> R {
        self.changes.without_thread(&Suspended(self), call)
    }

    /// Whether a thread is on its way, or opens what it needs.
    fn is_starting(&self) -> bool {
        match self.state.load(SeqCst) {
            STARTING | LOOKING => true,
            BEGUN => self.thread.is_alive(),
            _ => false,
        }
    }

    /// Whether there is a background thread, or is about to be.
    pub fn is_there(&self) -> bool {
        !matches!(self.state.load(Relaxed), ABSENT | REFUSED)
    }

    /// To be called after the program has changed itself as a whole. The background thread is gone when this returns,
    /// and another one is there, which the calling thread started.
    pub fn program_has_changed(&'static self) {
        self.without_thread(|| ());
    }
}

/// The background thread as [`crate::threads::changes::Changes`] suspends it.
struct Suspended(&'static Background);

impl Suspend for Suspended {
    fn is_of_this_process(&self) -> bool {
        self.0.owner.get() == getpid()
    }

    /// A program may call from a signal handler that interrupted what the thread waits for; then the thread ends as
    /// soon as it can.
    fn end_before(&self, deadline: u64) {
        let background = self.0;
        // One that starts will see the change.
        let mut round = 0;
        while background.is_starting() && !background.thread.is_here() && monotonic_ns() < deadline {
            pause(round);
            round += 1;
        }
        background.wake();
        if !is_own_thread() {
            background.thread.wait_gone(deadline);
            background.node_workers.wait_gone(deadline);
        }
    }

    fn start_again(&self) {
        if self.0.state.load(SeqCst) == ABSENT {
            self.0.start(ABSENT, REPLACEMENT);
        }
    }
}
