//! Traits that the engine needs from below, by concern. Linux, a bare-metal guest and a simulation implement them.

pub(crate) mod clock;
pub(crate) mod cpu;
pub mod cpu_table;
pub(crate) mod diagnostics;
pub(crate) mod event_count;
pub mod lock;
pub(crate) mod memory;
pub mod rank;
pub(crate) mod release;
pub(crate) mod sync;
pub(crate) mod topology;
pub(crate) mod wait;
pub(crate) mod workers;

pub use clock::Clock;
pub use cpu::CpuOps;
pub use diagnostics::Diagnostics;
pub use memory::{Collapse, Memory, Placed, Reach, Refused};
pub use release::{Contents, Host, Released};
pub use topology::Topology;
pub use wait::Wait;
pub use workers::Workers;

/// All of it. No method may allocate through the engine.
pub trait Platform: Memory + Wait + Clock + Topology + Workers + CpuOps + Sync {}

impl<T: Memory + Wait + Clock + Topology + Workers + CpuOps + Sync> Platform for T {}
