//! Parts that the programs share: malloc as C calls it, threads and time, the kernel, the caches and pools of
//! `weir.h`.

pub mod clock;
pub mod counted;
pub mod guest;
pub mod mem;
pub mod pressure;
pub mod process;
pub mod run;
pub mod weir_h;

/// Names that nearly every program uses.
pub mod prelude {
    pub use crate::base::mem::{Block, PAGE, Random};
    pub use crate::base::process::{end, end_with_the_harness, listen, own_resident, peak_kib, phase, resident, say};
    pub use crate::base::run::{Run, SEED};
    pub use anyhow::{Context, Result, anyhow, bail, ensure};
    pub use std::hint::black_box;
    pub use std::time::{Duration, Instant};
    pub use weir_lab::common::group::Group;
    pub use weir_lab::common::resp::{Client, Pipeline};
    pub use weir_lab::common::words::Words;
}
