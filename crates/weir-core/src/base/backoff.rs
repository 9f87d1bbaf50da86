//! Not asking again at once what was just refused.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Calls that go without after a refusal: a refused `mmap` costs about as much as this many looks at the counter.
const CALLS: u32 = 1024;

/// Says whether it is time to ask the platform again.
///
/// ```
/// let asking = weir_core::base::backoff::Backoff::new();
/// assert!(asking.ready());
/// asking.refused();
/// assert!(!asking.ready());
/// assert!((0..2000).any(|_| asking.ready()));
/// ```
#[derive(Debug, Default)]
pub struct Backoff(AtomicU32);

impl Backoff {
    /// Nothing refused yet.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether to ask now. Threads that count down at once may lose a step to each other, which only lengthens it.
    pub fn ready(&self) -> bool {
        let left = self.0.load(Relaxed);
        if left > 0 {
            self.0.store(left - 1, Relaxed);
        }
        left == 0
    }

    /// The platform refused.
    pub fn refused(&self) {
        self.0.store(CALLS, Relaxed);
    }
}
