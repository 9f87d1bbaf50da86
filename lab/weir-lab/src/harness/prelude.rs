//! Names that nearly every experiment uses.

pub use crate::harness::child::{
    Finished, KilledOnDrop, Program, beside, find, load, number, numbers, plain_load, run as run_child, run_system,
    sleep_until, system, told as told_by, under,
};
pub use crate::harness::grid::{Grid, Measure, count, less, mib, more, short, table, told, turns};
pub use crate::harness::lab::{BLOCK_DEVICE, Lab, Need};
pub use crate::harness::machine::cgroup::Cgroup;
pub use crate::harness::machine::owner::{self, Folder};
pub use crate::harness::machine::pressure_fifo::PressureFifo;
pub use crate::harness::machine::restore;
pub use crate::harness::machine::swap;
pub use crate::harness::machine::{self, MODES};
pub use crate::harness::proc_files::{self, PAGE, ProcessMemory, available_memory, cpu_seconds, memory, swapped};
pub use crate::harness::statistics::{Paired, Sample, geometric_mean, student};
pub use crate::peers::{Allocator, WEIR, package_version, with_glibc_by_name};
pub use anyhow::{Context, Result, anyhow, bail, ensure};
pub use serde_json::{Value, json};
pub use std::fmt::{self, Display, Formatter};
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Stdio};
pub use std::time::{Duration, Instant};
pub use weir_lab::common::random::{Random, Zipf};
pub use weir_lab::common::resp::{Client, Pipeline, connect};
