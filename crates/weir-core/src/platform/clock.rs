//! Time.

use crate::base::time::{Nanos, Time};

/// A monotonic clock.
pub trait Clock {
    /// Time now.
    fn now(&self) -> Time;
    /// CPU time that the calling thread has used. A platform that cannot say says what time it is: then waiting counts
    /// as work.
    fn cpu_time(&self) -> Nanos {
        self.now() - Time::ZERO
    }
}
