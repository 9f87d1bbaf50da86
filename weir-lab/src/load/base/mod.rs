//! What the programs share: malloc as C calls it, threads and time, the kernel, the caches of `weir.h`.

pub mod args;
pub mod cgroup_v2;
pub mod clock;
pub mod mem;
pub mod process;
pub mod run;
pub mod userland;
pub mod weir_caches;
