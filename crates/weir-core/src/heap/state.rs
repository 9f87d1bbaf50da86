//! Memory of reclaim, and what it shares with the program's threads.

use core::sync::atomic::{AtomicU64, AtomicUsize};

use crate::platform::event_count::EventCount;
use crate::reclaim::budget::Budget;
use crate::reclaim::node_balancer::NodeBalancer;
use crate::reclaim::pressure_level::Pressure;
use crate::reclaim::windows::Windows;

/// The state of reclaim.
pub(super) struct State {
    pub(super) windows: Windows,
    pub(super) node_balancer: NodeBalancer,
    pub(super) budget: Budget,
    pub(super) pressure: Pressure,
    /// On which throttled allocations wait: very little is free, and the balancer makes progress. It tells them of that, and when
    /// it goes to sleep. On it wait as well those that another thread's call of the program at the hard limit may help.
    pub(super) throttle: EventCount,
    /// The thread that is in the program's callback at the hard limit; 0: none.
    pub(super) in_hard_limit: AtomicUsize,
    /// Until then direct reclaim is not tried, as it brought nothing, ns.
    pub(super) fruitless_until: AtomicU64,
}

impl State {
    pub(super) const fn new() -> Self {
        Self {
            windows: Windows::new(),
            node_balancer: NodeBalancer::new(),
            budget: Budget::new(),
            pressure: Pressure::new(),
            throttle: EventCount::new(),
            in_hard_limit: AtomicUsize::new(0),
            fruitless_until: AtomicU64::new(0),
        }
    }
}
