//! What every experiment can be told on the command line.

use crate::peers;
use clap::Args;
use std::path::PathBuf;

/// What every experiment can be told.
#[derive(Args)]
pub struct RunArgs {
    /// One of those that `weir-lab list` names.
    pub name: String,
    /// Smaller and fewer: shows that it works, proves nothing.
    #[arg(long)]
    pub quick: bool,
    /// Also write every single measurement to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only these peers; all that are there unless given. Weir runs whenever it is there.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub peers: Vec<String>,
    /// Rounds, in each of which every allocator has its turn (5; quick: 2 of e9, 1 of the others).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Weir's shared object. Else $WEIR_LIB, else libweir.so or libweir_malloc.so beside this program.
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Which allocator is compared with the best of the others.
    #[arg(long, default_value = peers::WEIR, value_name = "NAME")]
    pub subject: String,
    /// e3, e5, e6, e9, hitrate, scaling, sweep: only these parts, workloads, programs, traces and patterns. picture: these
    /// settings of huge pages.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub only: Vec<String>,
    /// e8: how the bytes of the peak lie over the sizes 16 B to 256 KiB.
    #[arg(long, value_parser = ["even-counts", "even-bytes"], default_value = "even-counts")]
    pub mix: String,
    /// soak: how long it takes (30; quick: a third).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub minutes: Option<u32>,
    /// e8: how long A idles without a limit, where it is looked at last, s (10; quick: 1). khugepaged comes by every 10 s.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub later: Option<u32>,
    /// hitrate: also this trace, a file of little-endian 64-bit keys; may be given many times.
    #[arg(long, value_name = "FILE")]
    pub trace: Vec<PathBuf>,
    /// picture, sweep: where to draw it.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// e5, e8: where the swap file is made while it runs.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub swap_dir: PathBuf,
}
