//! What the engine runs on: memory, its release, waiting, the machine's topology, per-CPU operations.

pub mod address_layout;
pub mod fast_path;
pub mod fork_advice;
pub mod hooks;
pub mod linux;
mod memory;
mod own_registration;
pub mod release;
pub mod rseq;
pub mod sandbox;
pub mod statics;
pub mod stats_page;
pub mod stats_sharing;
pub mod topology;
