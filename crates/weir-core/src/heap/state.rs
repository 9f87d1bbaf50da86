//! Memory of reclaim, and what it shares with the program's threads.

use core::sync::atomic::{AtomicBool, AtomicU64};

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
    /// it goes to sleep.
    pub(super) throttle: EventCount,
    /// A program's callback at the hard limit is under way.
    pub(super) in_hard_limit: AtomicBool,
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
            in_hard_limit: AtomicBool::new(false),
            fruitless_until: AtomicU64::new(0),
        }
    }
}
