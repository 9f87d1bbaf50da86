//! Weir's own threads.

pub mod aside;
pub mod background;
pub mod finalizer;
pub(crate) mod node_worker;
mod owner;
mod thread;
