//! The command line.

use crate::base::units;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A memory manager for Linux programs in which every cache can be reclaimed under memory pressure.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with Weir as its malloc
    Run(RunOptions),
    /// Say what works on this machine, and what Weir does without what does not
    Doctor {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Print the table of settings, as Markdown
    Settings,
    /// Write this program's man pages and shell completions
    Generate {
        /// Where to: a directory, which is made
        directory: PathBuf,
    },
}

/// Options of `weir run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: the program's own; 125 if Weir itself fails or its options are wrong, 126 if the program cannot be \
                        executed, 127 if it is not found. A program that a signal ended is followed by the same signal (128 and \
                        its number, as a shell has it). The run ends with the program; what it left running goes on, \
                        unless this is PID 1 of a container, which takes all with it."
)]
pub struct RunOptions {
    /// Keep the resident memory of each process under SIZE where idle memory allows it (64M, 1G)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = units::parse_limit)]
    pub limit: Option<u64>,
    /// Fail allocations that would make the heap of a process larger than SIZE, after reclaim (64M, 1G)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = units::parse_limit)]
    pub hard_limit: Option<u64>,
    /// Also print the table of reclaim: who reclaimed how much, and who waited for it
    #[arg(long)]
    pub reclaim: bool,
    /// Also write the summary to FILE, as JSON; - is standard output, after the program's own
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write every batch of memory given back to FILE, a line of JSON each
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print no summary at the end
    #[arg(long, short)]
    pub quiet: bool,
    /// Print a line of counters each D (500ms, 2s, 1m)
    #[arg(long, value_name = "D", value_parser = units::parse_interval)]
    pub stats_interval: Option<Duration>,
    /// Go on until all processes that the program started have ended, daemons as well
    #[arg(long)]
    pub wait: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}
