//! For how long calm windows keep memory that is not used. That is long enough for a program that comes back for it
//! again and again. It is no longer than the setting `hold_ms` in a program that has come to rest.
//!
//! What was used in one of the last so many windows is kept. The refault meter ([`super::refault`]) doubles their
//! number while too much of what went is touched again. Windows stay as short as they are, so that rest is seen soon.
//! Beyond [`MOST_WINDOWS`] the windows themselves are doubled, where `hold_ms` allows that.

use crate::base::time::Nanos;

/// Windows over which what was used is kept, at most: of so many each place remembers its peak.
pub const MOST_WINDOWS: usize = 4;
/// Windows that may pass beyond the hold until memory goes. One is the rest of the window of its last use. The other is
/// the window in which what CPUs and depots hold is still counted as used.
const BEYOND: u64 = 2;
/// Doublings at most: those of the longest `idle_ms` fit into 64 bits.
const MOST_DOUBLINGS: u32 = 16;

/// See the module.
///
/// ```
/// use weir_core::base::time::Nanos;
/// use weir_core::policy::hold::Hold;
/// let ms = Nanos::of_ms;
/// assert_eq!(Hold::of(0, ms(300)), Hold { windows: 1, window_ns: ms(300) });
/// assert_eq!(Hold::of(2, ms(300)).least_ns(), ms(1_200));
/// assert_eq!(Hold::most_doublings(ms(300), ms(2_000)), 2); // It is gone after 1.8 s.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Over so many windows, the one that ends included.
    pub windows: usize,
    /// Length of each, ns.
    pub window_ns: Nanos,
}

impl Hold {
    /// After `doublings` of windows of `idle_ns`.
    pub const fn of(doublings: u32, idle_ns: Nanos) -> Self {
        let of_windows = if doublings < MOST_WINDOWS.ilog2() { doublings } else { MOST_WINDOWS.ilog2() };
        let of_length = doublings - of_windows;
        let of_length = if of_length < MOST_DOUBLINGS { of_length } else { MOST_DOUBLINGS };
        Self { windows: 1 << of_windows, window_ns: idle_ns.saturating_mul(1 << of_length) }
    }

    /// Time, ns, within which memory that is used again is always kept.
    pub fn least_ns(&self) -> Nanos {
        self.window_ns.saturating_mul(self.windows as u64)
    }

    /// Time, ns, after which unused memory has gone in a program at rest.
    pub fn most_ns(&self) -> Nanos {
        self.window_ns.saturating_mul(self.windows as u64 + BEYOND)
    }

    /// The doublings of windows of `idle_ns` after which memory of a program at rest goes within `longest_ns` yet.
    pub fn most_doublings(idle_ns: Nanos, longest_ns: Nanos) -> u32 {
        let fits = |&doublings: &u32| Self::of(doublings, idle_ns).most_ns() <= longest_ns;
        (1..=MOST_DOUBLINGS).take_while(fits).last().unwrap_or(0)
    }

    /// Time after a release, ns, within which a touch means that a longer hold would have kept the memory. The longer
    /// hold is at most `longest_ns`. The figure is a rough one, as the release came up to a window later than it might
    /// have.
    pub(crate) fn spared_ns(&self, idle_ns: Nanos, longest_ns: Nanos) -> Nanos {
        let most = Self::of(Self::most_doublings(idle_ns, longest_ns), idle_ns);
        most.least_ns().saturating_sub(self.least_ns()).saturating_add(self.window_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::of_ms(ms)
    }

    #[test]
    fn windows_are_more_before_they_are_longer() {
        let holds: Vec<_> = (0..5).map(|doublings| Hold::of(doublings, ms(300))).collect();
        assert_eq!(holds.iter().map(|hold| hold.windows).collect::<Vec<_>>(), [1, 2, 4, 4, 4]);
        assert_eq!(holds.iter().map(|hold| hold.window_ns / ms(1)).collect::<Vec<_>>(), [300, 300, 300, 600, 1200]);
    }

    #[test]
    fn what_comes_back_later_than_any_hold_says_nothing() {
        let spared = |doublings| Hold::of(doublings, ms(300)).spared_ns(ms(300), ms(2_000)) / ms(1);
        assert_eq!([spared(0), spared(1), spared(2)], [1200, 900, 300]);
        assert_eq!(Hold::of(0, ms(300)).spared_ns(ms(300), ms(0)), ms(300));
    }

    proptest! {
        #[test]
        fn no_hold_is_longer_than_it_may_be(idle_ms in 10u64..3_600_000, longest_ms in 0u64..3_600_000) {
            let (idle, longest) = (ms(idle_ms), ms(longest_ms));
            let most = Hold::most_doublings(idle, longest);
            prop_assert!(most == 0 || Hold::of(most, idle).most_ns() <= longest);
            prop_assert!(most == MOST_DOUBLINGS || Hold::of(most + 1, idle).most_ns() > longest);
            for doublings in 0..most {
                prop_assert_eq!(Hold::of(doublings + 1, idle).least_ns(), Hold::of(doublings, idle).least_ns() * 2);
            }
        }
    }
}
