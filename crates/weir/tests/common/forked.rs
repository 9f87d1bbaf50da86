//! Forked children of a test.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that is to end by itself.
#[must_use]
pub struct Forked(libc::pid_t);

impl Forked {
    /// One that runs `body` and ends, with a failure if it panics. A child that hangs is ended by its alarm.
    pub fn runs(body: impl FnOnce()) -> Self {
        // SAFETY: the child runs `body` and ends without returning to the test harness. The heap is what makes allocation in
        // the child of a threaded process sound.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::alarm(weir_testing::PATIENCE.as_secs() as u32);
                libc::_exit(catch_unwind(AssertUnwindSafe(body)).is_err().into());
            }
            Self(child)
        }
    }

    /// Waits for its end, which must be status 0.
    #[track_caller]
    pub fn ends_well(self) {
        let mut status = -1;
        // SAFETY: a child of this process, which nothing else waits for.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert_eq!(status, 0, "signal {}", status & 127);
    }
}

/// Runs `body` in a child, which must end well.
#[track_caller]
pub fn in_forked(body: impl FnOnce()) {
    Forked::runs(body).ends_well();
}
