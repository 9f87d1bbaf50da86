//! Decisions as pure functions of what they are given: no lock, no clock, no heap.

pub mod cache_cost;
pub mod cost_curve;
pub mod deferred;
pub(crate) mod growing_buffer;
pub mod hold;
pub(crate) mod huge_page_advice;
pub mod prices;
pub mod refault;
pub mod scan_priority;
pub mod victim_order;
pub mod watermarks;
pub mod working_set;
