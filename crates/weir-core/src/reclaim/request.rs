//! Requests to the node balancer, and its sleep: one word.
//!
//! A request names an order and the zone list along which it was made. For each list the largest order is kept: two requests
//! merge by maximum. One order and one list for all would turn "order 9 of huge pages" and "order 0 of any page" into one. That
//! is a request for order 9 of any page, which none made. The balancer takes all of them at once.
//!
//! The word also says that the balancer sleeps. Whoever adds a request clears that and, if it was set, wakes it; the balancer
//! sets it only while there is no request. The interleaving that this excludes: the balancer finds no request. A request is
//! added, and its sender sees the balancer awake. Then the balancer goes to sleep on it.

use super::sync::{AtomicU32, constructor};
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Zone lists there may be ([`ZoneList`](crate::base::zone_class::ZoneList), by number).
pub const LISTS: usize = 6;
/// Bits of a list: 0 for no request, else the order plus one.
const BITS: u32 = 4;
const MASK: u32 = (1 << BITS) - 1;
/// The balancer sleeps.
const ASLEEP: u32 = 1 << 31;

const _: () = assert!(LISTS as u32 * BITS < 31, "the lists' bits meet that of sleep");

/// The largest order that is wanted, by zone list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request(u32);

impl Request {
    /// No request.
    pub const NONE: Self = Self(0);

    /// A request for a block of `order` (at most 10).
    pub(crate) fn new(order: u32, list: usize) -> Self {
        Self((order + 1) << (list as u32 * BITS))
    }

    /// Whether there is none.
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The order that is wanted along this list.
    pub(crate) fn order(self, list: usize) -> Option<u32> {
        (self.0 >> (list as u32 * BITS) & MASK).checked_sub(1)
    }

    /// This request and another one merged: the larger order for each list.
    #[must_use]
    pub(crate) fn merged(self, other: Self) -> Self {
        let larger = |list: usize| self.order(list).max(other.order(list));
        (0..LISTS).fold(Self::NONE, |all, list| match larger(list) {
            Some(order) => Self(all.0 | Self::new(order, list).0),
            None => all,
        })
    }

    /// The parts of it that `is_kept` says, given order and list.
    #[must_use]
    pub(crate) fn filter(self, is_kept: impl Fn(u32, usize) -> bool) -> Self {
        self.parts()
            .filter(|&(order, list)| is_kept(order, list))
            .fold(Self::NONE, |all, (order, list)| Self(all.0 | Self::new(order, list).0))
    }

    /// Orders and lists.
    pub(crate) fn parts(self) -> impl Iterator<Item = (u32, usize)> {
        (0..LISTS).filter_map(move |list| Some((self.order(list)?, list)))
    }
}

/// See the module.
pub struct Requests(AtomicU32);

impl Requests {
    constructor! {
        /// No request; the balancer sleeps, or is not there.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self(AtomicU32::new(ASLEEP))
        }
    }

    /// Adds a request; whether the balancer slept, and is to be woken by the caller.
    pub(crate) fn add(&self, request: Request) -> bool {
        let mut before = self.0.load(Acquire);
        loop {
            let merged = Request(before & !ASLEEP).merged(request).0;
            match self.0.compare_exchange(before, merged, AcqRel, Acquire) {
                Ok(_) => return before & ASLEEP != 0,
                Err(now) => before = now,
            }
        }
    }

    /// All requests, which are the caller's from now on. By the balancer, which is awake.
    pub(crate) fn take(&self) -> Request {
        Request(self.0.swap(0, AcqRel) & !ASLEEP)
    }

    /// Whether there are any.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.load(Acquire) & !ASLEEP != 0
    }

    /// The balancer is about to sleep; `false`: there is a request, and it must not.
    pub(crate) fn sleep(&self) -> bool {
        self.0.compare_exchange(0, ASLEEP, AcqRel, Acquire).is_ok() || self.0.load(Acquire) == ASLEEP
    }

    /// The balancer is about to sleep for a bounded time whatever was requested, as reclaim failed; or it was not there to be
    /// woken. The requests stay, and the next one wakes it.
    pub(crate) fn sleep_regardless(&self) {
        self.0.fetch_or(ASLEEP, AcqRel);
    }

    /// Whether the balancer is awake, or was just woken.
    pub(crate) fn is_awake(&self) -> bool {
        self.0.load(Acquire) & ASLEEP == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn requests_merge_by_maximum_and_are_consumed_at_once() {
        let requests = Requests::new();
        assert!(requests.add(Request::new(3, 1)), "it slept");
        assert!(
            !requests.add(Request::new(0, 2)) && !requests.add(Request::new(9, 1)) && !requests.add(Request::new(4, 1))
        );
        let taken = requests.take();
        assert_eq!((taken.order(0), taken.order(1), taken.order(2)), (None, Some(9), Some(0)));
        assert_eq!(requests.take(), Request::NONE);
        assert!(requests.is_awake() && requests.sleep() && !requests.is_awake());
    }

    #[test]
    fn it_does_not_sleep_on_a_request_unless_reclaim_failed() {
        let requests = Requests::new();
        requests.add(Request::new(10, 3));
        assert!(!requests.sleep() && requests.is_awake());
        requests.sleep_regardless();
        assert!(!requests.is_awake() && requests.is_pending());
        assert!(requests.add(Request::new(0, 0)), "the next request wakes it");
        assert_eq!(requests.take().parts().collect::<std::vec::Vec<_>>(), [(0, 0), (10, 3)]);
    }
}
