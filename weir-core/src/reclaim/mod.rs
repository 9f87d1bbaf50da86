//! Reclaim: who is scanned, in which order, how far, and when to stop. What can be reclaimed is reached by one trait alone.

pub mod audit;
mod balanced_node;
pub mod balancer_turn;
pub mod boost;
pub mod budget;
pub mod events;
pub mod goal;
pub mod node_balancer;
pub mod order;
pub mod pressure;
pub mod pressure_event;
pub mod reclaimable;
pub mod request;
pub mod step;
pub mod throttle;
pub mod usage;
pub mod windows;

pub use audit::Audit;
pub use events::Events;
pub use goal::{Cushion, Goal, Kind, Side};
pub use order::run;
pub use pressure_event::{Event, PressureEvents};
pub use reclaimable::{Reclaimable, Reclaimed};
pub use step::Step;
pub use usage::{Figures, Usage};

use crate::platform::{sync, wait};
