//! A mutating admission webhook that brings Weir into the pods that ask for it, and refuses nothing.
//!
//! What is done to a pod is a pure function, [`inject::mutate`]. The rest is how an API server reaches it: TLS with
//! certificates that renew themselves ([`certificates`]), the server ([`serve`]), and what it tells ([`events`],
//! [`metrics`]).

// A panic ends the process: what may fail says so by its type.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod certificates;
pub mod command_line;
pub mod events;
pub mod inject;
pub mod metrics;
pub mod serve;
