//! The options of experiments. Each takes `quick`, `json`, `peers` and `weir`, and those others that it lists.

use crate::peers;
use clap::Args;
use std::path::PathBuf;

/// The options of one run.
#[derive(Args)]
pub struct RunArgs {
    /// Smaller and fewer: shows that it works, proves nothing
    #[arg(long)]
    pub quick: bool,
    /// Also write every single measurement to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only these peers; all that are installed unless given. Weir always runs if it is found
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub peers: Vec<String>,
    /// Weir's shared object [default: $WEIR_LIB, or libweir.so beside this program]
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Rounds, in each of which every allocator has its turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// The rounds of this run, by `runs` or by the experiment's default.
    #[arg(skip)]
    pub rounds: u32,
    /// The allocator that is compared with the best of the others
    #[arg(long, default_value = peers::WEIR, value_name = "NAME")]
    pub subject: String,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub only: Vec<String>,
    /// How the bytes of the peak are distributed over the sizes 16 B to 256 KiB
    #[arg(long, value_parser = ["even-counts", "even-bytes"], default_value = "even-counts")]
    pub mix: String,
    /// How long it takes [default: 30; with --quick: 20 seconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub minutes: Option<u32>,
    /// How long each run takes [default: 600; with --quick: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub seconds: Option<u32>,
    /// Also read the resident set of A without a limit after it has been idle for so long (khugepaged runs every 10 s)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub later: Option<u32>,
    /// Also this trace, a file of little-endian 64-bit keys; may be given many times
    #[arg(long, value_name = "FILE")]
    pub trace: Vec<PathBuf>,
    /// Where to draw it
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Where to record it, as an asciicast
    #[arg(long, value_name = "FILE")]
    pub cast: Option<PathBuf>,
    /// Also Weir with its heap profile on, a sample each 512 KiB
    #[arg(long)]
    pub profiled: bool,
    /// Where the swap file is made while it runs
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub swap_dir: PathBuf,
}

impl RunArgs {
    /// Sets the rounds: as asked for, else the first of `defaults`, or the second of a quick run.
    pub fn set_rounds(&mut self, defaults: [u32; 2]) {
        self.rounds = self.runs.unwrap_or(defaults[usize::from(self.quick)]);
    }
}
