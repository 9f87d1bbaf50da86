//! `weir-lab`: Weir's experiments and the peers it is measured against.

#[cfg(target_arch = "x86_64")]
mod calls;
mod cgroup;
mod chart;
mod child;
mod e10;
mod e10_report;
mod e3;
mod e3_report;
mod e4;
mod e4_report;
mod e5;
mod e5_report;
mod e5_tenant;
mod e6;
mod e6_document;
mod e6_huge;
mod e6_report;
mod e8;
mod e8_report;
mod e8_run;
mod e9;
mod e9_report;
mod fifo;
mod groups;
mod guest;
mod guest_kernel;
mod initramfs;
mod latency;
mod latency_report;
mod machine;
mod one_at_a_time;
mod peer_build;
mod peers;
mod phased;
mod picture;
mod procfs;
mod program_batches;
mod program_postgres;
mod program_servers;
mod programs;
mod redis;
mod report;
mod report_time;
mod resp;
mod restore;
mod scaling;
mod scaling_report;
mod stats;
#[cfg(target_arch = "x86_64")]
mod step;
mod swap;
mod thp;
mod thread_limit;
mod turns;

use clap::{Args, Parser, Subcommand};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Weir's experiments and the peers it is measured against.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The experiments, the workloads of e9, and the peers with how to get each.
    List,
    /// Build the peers that come as crates; all of them unless named.
    Peers { names: Vec<String> },
    /// Fetch and unpack the kernel that the guests of e5 and of groups boot (Debian's cloud kernel).
    GuestKernel,
    /// Run an experiment and print its table.
    Run(Box<RunArgs>),
}

/// What every experiment can be told.
#[derive(Args)]
pub struct RunArgs {
    /// One of those that `weir-lab list` names.
    name: String,
    /// Smaller and fewer: shows that it works, proves nothing.
    #[arg(long)]
    quick: bool,
    /// Also write every single measurement to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these peers; all that are there unless given. Weir runs whenever it is there.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    peers: Vec<String>,
    /// Rounds, in each of which every allocator has its turn (5; quick: 2 of e9, 1 of the others).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Weir's shared object. Else $WEIR_LIB, else libweir.so or libweir_malloc.so beside this program.
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// Which allocator is compared with the best of the others.
    #[arg(long, default_value = peers::WEIR, value_name = "NAME")]
    subject: String,
    /// e3, e5, e6, e9, scaling: only these parts, workloads and programs. picture: these settings of huge pages.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    only: Vec<String>,
    /// e8: how the bytes of the peak lie over the sizes 16 B to 256 KiB.
    #[arg(long, value_parser = ["even-counts", "even-bytes"], default_value = "even-counts")]
    mix: String,
    /// picture: where to draw it.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// e5, e8: where the swap file is made while it runs.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    swap_dir: PathBuf,
}

/// An experiment: its name, what it shows, how it is run.
type Experiment =
    (&'static str, &'static str, fn(&RunArgs, Vec<peers::Allocator>) -> Result<serde_json::Value, String>);

const EXPERIMENTS: &[Experiment] = &[
    ("e3", "object caches under back pressure: a file server's buffers, with all memory and a twentieth", e3::run),
    ("e4", "forwarding: buffers taken on one CPU and given back on another, under pressure and drains", e4::run),
    ("e5", "density: how many idle processes or guests fit before the first swap, and what memhog takes", e5::run),
    ("e6", "what reporting costs: page faults a second with it and without; huge pages before and after", e6::run),
    ("e8", "the neighbour: what an idle process that once peaked costs another in its cgroup", e8::run),
    ("e9", "peers: the standard allocator workloads and real programs; time, peak resident set, page faults", e9::run),
    ("e10", "many threads: what is held for threads that used malloc once and sleep", e10::run),
    (
        "groups",
        "an idle heap in a group of cgroup v2 that comes to its limit, in a guest: does it give way",
        groups::run,
    ),
    #[cfg(target_arch = "x86_64")]
    ("calls", "instructions of a malloc and of a free, counted one by one", calls::run),
    ("latency", "single calls of malloc and free while memory is given back: p50 to the longest", latency::run),
    ("scaling", "the threaded workloads of e9 on 1 to 64 threads; calls while up to 16 GiB are live", scaling::run),
    ("picture", "memory over time, from a peak to 12 s of idleness, as a drawing (--svg FILE)", picture::run),
    ("report", "from a pressure event to the last idle byte of 1 GiB given back; its processor time", report_time::run),
    ("redis", "the resident set of redis-server after FLUSHALL of 500 MB", redis::run),
];

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = restore::install().and_then(|()| match cli.command {
        Command::List => list(),
        Command::Peers { names } => build_peers(&names),
        Command::GuestKernel => guest_kernel::fetch().map(|kernel| println!("{}", kernel.image.display())),
        Command::Run(args) => run(&args),
    });
    restore::everything();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weir-lab: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &RunArgs) -> Result<(), String> {
    let names = || EXPERIMENTS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let (name, _, work) = EXPERIMENTS
        .iter()
        .find(|(name, ..)| *name == args.name)
        .ok_or_else(|| format!("no experiment is called '{}': there are {}", args.name, names()))?;
    let allocators = peers::choose(&args.peers, args.weir.as_deref())?;
    if allocators.is_empty() {
        return Err("no allocator to measure: see `weir-lab list`".into());
    }
    println!("# {name}\n\n{}\n", machine::describe());
    println!("{}\n", allocators.iter().map(|a| format!("{} {}", a.name, a.version)).collect::<Vec<_>>().join("; "));
    // Before the run: that a file cannot be written should not be learnt an hour later.
    let file = args.json.as_ref().map(|path| open_json(path)).transpose()?;
    let result = work(args, allocators.clone())?;
    if let Some(mut file) = file {
        let versions: serde_json::Map<_, _> = allocators.into_iter().map(|a| (a.name, a.version.into())).collect();
        let all = serde_json::json!({
            "experiment": name, "quick": args.quick, "machine": machine::describe(), "allocators": versions,
            "result": result,
        });
        writeln!(file, "{all:#}").map_err(|why| format!("cannot write the JSON file: {why}"))?;
    }
    match result["failed"].as_str() {
        Some(which) => Err(format!("the subject failed: {which}")),
        None => Ok(()),
    }
}

fn open_json(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|why| format!("cannot write {}: {why}", path.display()))
}

fn list() -> Result<(), String> {
    println!("Experiments (weir-lab run NAME):");
    for (name, about, _) in EXPERIMENTS {
        println!("  {name:<15} {about}");
    }
    println!("\nAllocators:");
    let weir = (peers::WEIR, peers::weir(None));
    for (name, found) in std::iter::once(weir).chain(peers::PEERS.iter().map(|peer| (peer.name, peer.find()))) {
        match found {
            Ok(allocator) => println!("  {name:<15} {}", allocator.version),
            Err(how) => println!("  {name:<15} not here: {how}"),
        }
    }
    for (name, why) in peers::OUT_OF_REACH {
        println!("  {name:<15} out of reach: {why}");
    }
    println!("\nWorkloads of e9 (--only A,B):");
    for workload in e9::workloads()? {
        println!("  {:<15} {} thread(s), {}", workload.name, workload.threads, workload.about);
    }
    println!("\nPrograms of e9 (--only A,B):");
    for program in programs::PROGRAMS {
        let missing = program.here().err().map_or(String::new(), |why| format!(" ({why})"));
        println!("  {:<15} {}{missing}", program.name, program.about);
    }
    Ok(())
}

fn build_peers(names: &[String]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| peer_build::RECIPES.iter().all(|recipe| recipe.name != **name)) {
        return Err(format!("'{unknown}' is not a peer that is built: see `weir-lab list`"));
    }
    let mut failed = Vec::new();
    for recipe in peer_build::RECIPES.iter().filter(|r| names.is_empty() || names.iter().any(|name| name == r.name)) {
        match recipe.build() {
            Ok(path) => println!("{:<15} {}", recipe.name, path.display()),
            Err(why) => {
                eprintln!("{:<15} {why}", recipe.name);
                failed.push(recipe.name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not built: {}", failed.join(", "))) }
}
