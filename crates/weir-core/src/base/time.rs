//! Time: moments of a monotonic clock, and how long something takes. Two moments have a distance and no sum.

use core::ops::Div;

/// How long something takes, ns.
///
/// ```
/// use weir_core::base::time::{Nanos, Time};
///
/// assert_eq!(Time(700) + Nanos(300), Time(1000));
/// assert_eq!(Time(1000).since(Time(700)), Nanos(300));
/// ```
///
/// A moment is no length of time:
///
/// ```compile_fail,E0308
/// use weir_core::base::time::{Nanos, Time};
///
/// let pause: Nanos = Time(700);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// `ms` milliseconds.
    #[inline]
    pub const fn of_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// So many times as long; at most what 64 bits hold.
    #[inline]
    pub(crate) const fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

amount!(Nanos(u64));

impl Div for Nanos {
    /// How often the one is in the other.
    type Output = u64;
    #[inline]
    fn div(self, other: Self) -> u64 {
        self.0 / other.0
    }
}

/// A moment: ns since some moment in the past, which is the clock's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Before all others; where it stands for something that did not happen, nothing did.
    pub const ZERO: Self = Self(0);

    /// How long `earlier` is ago; nothing if it is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `later` after this one, or the last one there is.
    #[inline]
    pub(crate) const fn saturating_add(self, later: Nanos) -> Self {
        Self(self.0.saturating_add(later.0))
    }
}

point!(Time(u64) by Nanos(u64));
