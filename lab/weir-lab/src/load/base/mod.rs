//! What the programs share: malloc as C calls it, threads and time, the kernel, the caches and pools of `weir.h`.

pub mod args;
pub mod cgroup_v2;
pub mod clock;
pub mod counted;
pub mod kernel_words;
pub mod mem;
pub mod pressure;
pub mod process;
pub mod run;
pub mod userland;
pub mod weir_caches;
pub mod weir_pools;
