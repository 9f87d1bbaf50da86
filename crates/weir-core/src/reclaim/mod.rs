//! Reclaim: who is scanned, in which order, how far, and when to stop. What can be reclaimed is reached by one trait alone.

pub mod balancer_turn;
pub(crate) mod boost;
pub mod budget;
pub(crate) mod events;
pub(crate) mod goal;
pub mod node_balancer;
pub(crate) mod order;
pub(crate) mod pressure_event;
pub(crate) mod pressure_level;
pub(crate) mod reclaimable;
pub(crate) mod request;
pub(crate) mod step;
pub(crate) mod usage;
pub(crate) mod windows;

pub use events::Events;
pub use goal::{Cushion, Ended, Goal, Kind, Side};
pub(crate) use goal::{Drains, Need, Pools};
pub(crate) use order::run;
pub use pressure_event::{Event, PressureEvents};
pub use reclaimable::{Audited, Freeze, Measured, Reclaimable, Reclaimed};
pub use step::{Step, Steps};
pub use usage::{Audit, Figures, Usage};

use crate::platform::sync;
