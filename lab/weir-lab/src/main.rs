//! `weir-lab`: Weir's experiments and the peers it is measured against.

mod experiments;
mod guest;
mod harness;
mod peers;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, builder::PossibleValuesParser};
use experiments::speed::e9_peers::{self, programs};
use experiments::{EXPERIMENTS, Experiment};
use harness::lab::{Lab, RunArgs};
use harness::machine::{self, restore};
use peers::build::RECIPES;
use std::process::ExitCode;

/// Weir's experiments and the peers it is measured against.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the experiments, the workloads and programs of e9, and the peers with how to get each
    List,
    /// Build the peers that come as crates
    Peers {
        #[arg(value_parser = PossibleValuesParser::new(RECIPES.map(|recipe| recipe.name)))]
        names: Vec<String>,
    },
    /// Fetch and unpack the kernel that the guests of e5, e12 and groups boot (Debian's cloud kernel)
    GuestKernel,
    /// Run an experiment and print its tables
    Run {
        #[arg(value_parser = PossibleValuesParser::new(EXPERIMENTS.iter().map(|experiment| experiment.name)))]
        experiment: String,
        #[command(flatten)]
        args: Box<RunArgs>,
    },
}

fn main() -> ExitCode {
    let action = Cli::parse().action;
    let done = restore::install().and_then(|()| match action {
        Action::List => list(),
        Action::Peers { names } => build_peers(&names),
        Action::GuestKernel => guest::kernel::fetch().map(|kernel| println!("{}", kernel.image.display())),
        Action::Run { experiment, args } => run(&experiment, *args),
    });
    restore::everything();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weir-lab: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, mut args: RunArgs) -> Result<()> {
    let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
    let Experiment { rounds, run, .. } = found.context("no such experiment")?;
    args.rounds = args.runs.unwrap_or(rounds[usize::from(args.quick)]);
    let allocators = peers::choose(&args.peers, args.weir.as_deref())?;
    let versions: Vec<_> = allocators.iter().map(|a| format!("{} {}", a.name, a.version)).collect();
    println!("# {name}\n\n{}\n\n{}\n", machine::describe(), versions.join("; "));
    println!("{}\n", found.map_or(String::new(), Experiment::about));
    machine::clear_leftovers()?;
    let mut lab = Lab::new(args, allocators);
    run(&mut lab)?;
    lab.end(name)
}

fn list() -> Result<()> {
    println!("Experiments (weir-lab run NAME):");
    for experiment in EXPERIMENTS {
        println!(
            "  {:<15} {}",
            experiment.name,
            experiment.about().split(". ").next().unwrap_or_default().replace('\n', " ")
        );
    }
    println!("\nAllocators:");
    for (name, found) in peers::all(None) {
        println!("  {name:<15} {}", found.map_or_else(|how| format!("not here: {how:#}"), |found| found.version));
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
        let missing = program.missing();
        let missing = if missing.is_empty() { "".into() } else { format!(" (missing: {})", missing.join(", ")) };
        println!("  {:<15} {}{missing}", program.name, program.about);
    }
    Ok(())
}

fn build_peers(names: &[String]) -> Result<()> {
    let mut failed = Vec::new();
    for recipe in RECIPES.iter().filter(|recipe| names.is_empty() || names.iter().any(|name| name == recipe.name)) {
        match recipe.build() {
            Ok(path) => println!("{:<15} {}", recipe.name, path.display()),
            Err(why) => {
                eprintln!("{:<15} {why:#}", recipe.name);
                failed.push(recipe.name);
            }
        }
    }
    ensure!(failed.is_empty(), "not built: {}", failed.join(", "));
    Ok(())
}
