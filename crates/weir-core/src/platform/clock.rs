//! Time.

/// A monotonic clock.
pub trait Clock {
    /// Nanoseconds since some moment in the past.
    fn now(&self) -> u64;
    /// CPU time that the calling thread has used, ns. A platform that cannot say says what time it is: then waiting counts
    /// as work.
    fn cpu_time(&self) -> u64 {
        self.now()
    }
}
