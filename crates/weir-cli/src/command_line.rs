//! The command line.

use crate::base::failure::STATUSES;
use crate::base::listen_address::{self, Address};
use crate::base::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use weir_core::telemetry::tunables::{TABLE, Tunables};

/// Bytes of the longest value that is sent to a process.
const LONGEST_VALUE: usize = 100;

/// A memory manager for Linux programs in which every cache can be reclaimed under memory pressure.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, after_help = STATUSES)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with Weir as its malloc
    Run(RunOptions),
    /// Show where the memory of a running process is; without PID list all processes that have Weir
    Stat(StatOptions),
    /// Say in plain words what holds a process's memory, and what would release it
    Why(WhyOptions),
    /// Watch processes on a screen that is kept up to date, and steer them
    Top(TopOptions),
    /// Read and change the settings of a running process, or have it release memory
    Ctl(CtlOptions),
    /// Lower the memory limit of a cgroup once its processes have given back what is too much
    Shrink(ShrinkOptions),
    /// Print each batch of memory that a running process releases, as a line of JSON
    Trace {
        /// The process to look at
        #[arg(value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid)]
        pid: i32,
    },
    /// Say what works on this machine, and what Weir does without what does not
    Doctor {
        /// Say whether this process has Weir and is served by it, and why not
        #[arg(value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid)]
        pid: Option<i32>,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Show which calls of a process allocated what it holds: a heap profile, sampled
    Profile(ProfileOptions),
    /// Serve the figures of all processes that have Weir as metrics, for Prometheus (OpenMetrics)
    Export(ExportOptions),
    /// Write a page about one run or several, from the files that `run`, `trace` and `stat` wrote
    Report(ReportOptions),
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
    /// Also write a page about the run to FILE: the curve of the resident set, and what was released
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Take heap profiles: each process writes NAME.PID when it ends, which `weir profile NAME.PID` reads
    #[arg(long, value_name = "NAME")]
    pub profile: Option<PathBuf>,
    /// Print no summary at the end
    #[arg(long, short)]
    pub quiet: bool,
    /// Print all figures at the end, not the verdict and what is out of the ordinary alone
    #[arg(long, short, conflicts_with = "quiet")]
    pub verbose: bool,
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

/// Options of `weir stat`.
#[derive(Debug, Args)]
#[command(
    after_help = "The figures are read from a page that the process shares with its own user and root. One that is \
                        named is told to measure where its memory is now, which takes it a few milliseconds for a GiB; without PID \
                        the processes do nothing for it, and what is known no more is `unknown`. Their meaning is defined in weir.h and in the documentation of `weir::heap::Usage`."
)]
pub struct StatOptions {
    /// The process to look at
    #[arg(value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid)]
    pub pid: Option<i32>,
    /// Print JSON; with --watch one line each time
    #[arg(long)]
    pub json: bool,
    /// Print all rows of a process's tables: not the ten largest alone, and also those of what holds nothing
    #[arg(long)]
    pub all: bool,
    /// Print again and again, every second or every INTERVAL (500ms, 2s, 1m)
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "1s",
        value_parser = units::parse_interval)]
    pub watch: Option<Duration>,
}

/// Options of `weir export`.
#[derive(Debug, Args)]
#[command(
    after_help = "GET /metrics has the figures, GET /healthz says that the exporter runs. Of other users' processes root \
                        alone has figures. SIGTERM ends it."
)]
pub struct ExportOptions {
    /// Where to: HOST:PORT, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:19347", value_parser = listen_address::parse)]
    pub listen: Address,
    /// Export the N processes with the largest resident sets at most; how many were left out is a metric
    #[arg(long, value_name = "N", default_value_t = 1000, allow_negative_numbers = true, value_parser = parse_count)]
    pub max_processes: usize,
    /// Export each object cache as well: some 20 series for each of up to 125 caches of a process
    #[arg(long)]
    pub caches: bool,
    /// Print the metrics to standard output, and end
    #[arg(long, conflicts_with = "listen")]
    pub once: bool,
}

/// Options of `weir report`.
#[derive(Debug, Args)]
#[command(
    after_help = "FILE is what one of these wrote: `weir run --json`, `weir run --trace`, `weir trace PID`, `weir stat PID \
                        --json --watch`, `weir stat --json --watch`. Files of different kinds are one run; files of one kind \
                        are runs beside each other: `weir report a.json a.trace b.json b.trace` compares a with b. The page \
                        needs nothing but itself: no script, no network."
)]
pub struct ReportOptions {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where to write the page; without it, to standard output
    #[arg(long, short, value_name = "PAGE")]
    pub output: Option<PathBuf>,
    /// The page's format
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    pub format: ReportFormat,
}

/// Formats of a report.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ReportFormat {
    /// With pictures
    Html,
    /// Text and tables
    Markdown,
}

/// Options of `weir why`.
#[derive(Debug, Args)]
#[command(
    after_help = "The parts add up to the resident set. A process with Weir is told to measure where its memory is, which \
                        takes it a few milliseconds for a GiB; one without Weir, too, is looked into, as far as the kernel tells."
)]
pub struct WhyOptions {
    /// The process to look at: one of your own, or as root any
    #[arg(value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid)]
    pub pid: i32,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Look twice, 5 seconds or INTERVAL apart (500ms, 1m), and say what grew: a leak shows
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "5s",
        value_parser = units::parse_interval)]
    pub growth: Option<Duration>,
}

/// Options of `weir profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "If the process takes no samples, sampling is switched on for --seconds, and off again; what was allocated \
                        before is not seen. If it does (WEIR_PROFILE_BYTES, `weir ctl PID set profile_bytes`), its profile is read \
                        at once. Without -o text is printed. A FILE is what a process with WEIR_PROFILE=NAME wrote when it ended. \
                        Ctrl-C ends the wait, and what there is is written."
)]
pub struct ProfileOptions {
    /// The process to look at, one of your own, or as root any; or a profile in a file
    #[arg(value_name = "PID|FILE")]
    pub subject: PathBuf,
    /// Where to write the profile: pprof's format, unless --format or an ending (.html, .txt, .collapsed) says otherwise; - is
    /// standard output, where text is written
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How long to sample; of a process that samples already: show what was allocated in this time [default: 30, if
    /// sampling is off or --bytes changes it]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_seconds)]
    pub seconds: Option<u32>,
    /// Mean of the bytes between two samples; less is more exact and costs more [default: 512K, if sampling is off]
    #[arg(long, value_name = "MEAN", value_parser = parse_mean)]
    pub bytes: Option<u64>,
    /// The format
    #[arg(long, value_enum)]
    pub format: Option<ProfileFormat>,
    /// Order by what was allocated, freed or not, instead of what is live
    #[arg(long)]
    pub allocated: bool,
    /// Leave sampling on
    #[arg(long)]
    pub keep_on: bool,
}

/// Formats of a heap profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileFormat {
    /// pprof's, gzip around it: `go tool pprof FILE`
    Pprof,
    /// A page with a flame graph
    Flame,
    /// The lines and call stacks that hold most
    Text,
    /// A line for each stack, for flame graph programs
    Collapsed,
}

/// Options of `weir top`.
#[derive(Debug, Args)]
#[command(after_help = "Keys are those of htop: h or F1 shows them.")]
pub struct TopOptions {
    /// Time between two looks (500ms, 2s)
    #[arg(long, short, value_name = "INTERVAL", default_value = "1s", value_parser = units::parse_interval)]
    pub delay: Duration,
    /// Also show processes without Weir
    #[arg(long, short)]
    pub all: bool,
    /// Print one screen as text, and end
    #[arg(long)]
    pub once: bool,
}

/// Options of `weir ctl`.
#[derive(Debug, Args)]
pub struct CtlOptions {
    /// The process to steer: one of your own, or as root any
    #[arg(value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid)]
    pub pid: i32,
    /// Print JSON, with all numbers in the settings' units and in bytes
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub action: CtlAction,
}

/// Options of `weir shrink`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each process of the group that has Weir releases what is free; then caches give, those first that cost least, \
                        until the group is below SIZE; when it has been for 100 ms the limit is set (memory.max, memory.limit_in_bytes). If too little \
                        is given the limit stays, caches may grow again, status is 1, and the table says who holds what."
)]
pub struct ShrinkOptions {
    /// The directory of the group: version 1 or 2
    #[arg(long, value_name = "PATH")]
    pub cgroup: PathBuf,
    /// The limit (64M, 1G)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = units::parse_limit)]
    pub to: u64,
    /// How long the processes may take (500ms, 10s, 1m)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::parse_interval)]
    pub timeout: Duration,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum CtlAction {
    /// Print a setting, or all of them
    Get {
        /// See `weir settings`
        #[arg(value_parser = setting_name())]
        name: Option<String>,
    },
    /// Change a setting: its next decision uses the new value
    Set {
        /// See `weir settings`
        #[arg(value_parser = setting_name())]
        name: String,
        /// A number in the setting's unit; of bytes also one such as 64M, of times also one such as 5s; or as `get` prints it
        #[arg(value_parser = setting_value)]
        value: String,
    },
    /// Release what is idle, and what caches hold beyond what they will want again
    Trim,
    /// Release all that is free, whatever it costs to get it again, as malloc_trim() and weir_trim() do
    Drain,
    /// Measure where the memory is now, and print it
    Report,
}

/// Reads the number of a process.
fn parse_pid(text: &str) -> Result<i32, String> {
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.ok_or_else(|| format!("`{text}` is no number of a process: write one, as `pidof` prints it"))
}

/// Reads for how long to sample.
fn parse_seconds(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is no number of seconds: write one from 1 to 86400"))
}

/// Reads a mean of bytes between two samples: one that the setting can have.
fn parse_mean(text: &str) -> Result<u64, String> {
    let mean = units::parse_bytes(text)?;
    Tunables::new().set_number("profile_bytes", mean).map(|_| mean).map_err(|why| why.to_string())
}

/// Reads how many of something.
fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is no number: write a whole one, such as 1000"))
}

/// The names of settings: a wrong one is answered with those that are like it.
fn setting_name() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(TABLE.iter().map(|setting| setting.name))
}

/// A value, which may have blanks, as `weir ctl PID get` prints some. Whether it is right is looked at later.
fn setting_value(text: &str) -> Result<String, String> {
    let is_of_a_value = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let is_value = !text.trim().is_empty() && text.bytes().all(is_of_a_value) && text.len() <= LONGEST_VALUE;
    is_value.then(|| text.to_owned()).ok_or_else(|| format!("`{text}` is no value: write a number, such as 64M"))
}
