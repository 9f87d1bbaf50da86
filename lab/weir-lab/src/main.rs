//! `weir-lab`: Weir's experiments and the peers it is measured against.

mod command_line;
mod experiments;
mod guest;
mod harness;
mod peers;

use command_line::Action;
use experiments::e9_peers::{self, programs};
use experiments::{EXPERIMENTS, Experiment};
use guest::kernel as guest_kernel;
use harness::args::RunArgs;
use harness::{exclusive, machine, restore};
use peers::build as peer_build;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let action = command_line::parse();
    let done = restore::install().and_then(|()| match action {
        Action::List => list(),
        Action::BuildPeers(names) => build_peers(&names),
        Action::FetchKernel => guest_kernel::fetch().map(|kernel| println!("{}", kernel.image.display())),
        Action::Run(experiment, args) => run(experiment, &args),
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

fn run(experiment: &Experiment, args: &RunArgs) -> Result<(), String> {
    let name = experiment.name;
    let allocators = peers::choose(&args.peers, args.weir.as_deref())?;
    if allocators.is_empty() {
        return Err("no allocator to measure: see `weir-lab list`".into());
    }
    println!("# {name}\n\n{}\n", machine::describe());
    println!("{}\n", allocators.iter().map(|a| format!("{} {}", a.name, a.version)).collect::<Vec<_>>().join("; "));
    // Before the run, so that a file that cannot be written is an error at once and not an hour later.
    let file = args.json.as_ref().map(|path| open_json(path)).transpose()?;
    exclusive::clear_leftovers()?;
    let result = (experiment.run)(args, allocators.clone())?;
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
    // SAFETY: sets the default action of a signal that the standard library set to be ignored; no handler is involved.
    // So a reader that closes the pipe (`| head`) ends the program without a panic.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    println!("Experiments (weir-lab run NAME):");
    for experiment in EXPERIMENTS {
        println!("  {:<15} {}", experiment.name, experiment.about);
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
