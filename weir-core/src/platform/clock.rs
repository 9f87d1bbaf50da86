//! Time.

/// A monotonic clock.
pub trait Clock {
    /// Nanoseconds since some moment in the past.
    fn now(&self) -> u64;
}
