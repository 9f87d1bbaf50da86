//! Services that the engine runs on: memory, its release, waiting, the machine's topology, per-CPU operations.

pub mod address_layout;
pub mod fast_path;
pub mod fork_advice;
pub mod hooks;
pub mod linux;
pub mod machine;
mod memory;
mod memory_probes;
pub mod merging;
pub mod other_malloc;
mod own_registration;
pub mod release;
pub mod rseq;
pub mod rseq_area;
pub mod statics;
pub mod stats_page;
