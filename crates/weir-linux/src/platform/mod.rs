//! Services that the engine runs on: memory, its release, waiting, the machine's topology, per-CPU operations.

pub mod fast_path;
pub mod linux;
pub mod machine;
pub mod memory;
mod memory_probes;
pub(crate) mod neighbours;
pub mod other_malloc;
pub mod statics;
pub mod stats_page;
