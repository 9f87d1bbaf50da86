//! `weir-lab`: Weir's experiments and the peers it is measured against.

mod experiments;
mod guest;
mod harness;
mod peers;

use clap::{Parser, Subcommand};
use experiments::EXPERIMENTS;
use experiments::e9_peers::{self, programs};
use guest::kernel as guest_kernel;
use harness::args::RunArgs;
use harness::{machine, restore};
use peers::build as peer_build;
use std::fs::File;
use std::io::Write;
use std::path::Path;
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
    for workload in e9_peers::workloads()? {
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
