//! `weir-lab-load`: the programs that are measured, one a run, under whatever malloc is preloaded.
//!
//! `weir-lab-load list` names E9's workloads; `weir-lab-load NAME [key=value ...]` runs a program and prints its result as
//! a line of JSON. The harness is another program, so its own allocations are never in a measurement.

#![allow(clippy::print_stdout)]

mod base;
mod programs;
mod table;

use anyhow::{Context, Result, ensure};
use base::process::{end_with_the_harness, peak_kib};
use base::run::Run;
use programs::calls::{big_heap, latency, sweep, sweep_calls};
use programs::neighbours::{hog, neighbour, swing};
use programs::{file_server, forward, guest, huge_heap, many_threads, page_fault, page_pools, soak, sparse};
use weir_lab::common::words::Words;

fn main() {
    end_with_the_harness();
    if let Err(why) = run(std::env::args().skip(1)) {
        eprintln!("weir-lab-load: {why:#}");
        std::process::exit(2);
    }
}

fn run(mut args: impl Iterator<Item = String>) -> Result<()> {
    let name = args.next().unwrap_or_default();
    if name == "guest-init" {
        return guest::init::main(args);
    }
    let words = Words::read(args)?;
    match name.as_str() {
        "list" => table::print(),
        "neighbour" => neighbour::main(&words)?,
        "many-threads" => many_threads::main(&words)?,
        "latency" => latency::main(&words)?,
        "big-heap" => big_heap::main(&words)?,
        "file-server" => file_server::server(&words)?,
        "file-clients" => file_server::clients(&words)?,
        "forward" => forward::main(&words)?,
        "hog" => hog::main(&words)?,
        "huge-heap" => huge_heap::main(&words)?,
        "page-fault" => page_fault::main(&words)?,
        "page-pools" => page_pools::main(&words)?,
        "soak" => soak::main(&words)?,
        "sparse" => sparse::main(&words)?,
        "sweep" => sweep::main(&words)?,
        "sweep-calls" => sweep_calls::main(&words)?,
        "swing" => swing::main(&words)?,
        _ => return workload(&name, &words),
    }
    Ok(())
}

fn workload(name: &str, words: &Words) -> Result<()> {
    let found = table::WORKLOADS.iter().find(|(known, ..)| *known == name);
    let (_, every_cpu, _, work) = found.with_context(|| format!("no program is called '{name}'"))?;
    let run = Run::read(words, table::threads(*every_cpu), 1000)?;
    let start = std::time::Instant::now();
    let ops = work(&run);
    let ns = start.elapsed().as_nanos();
    ensure!(ops > 0, "{name} did no operation in its time");
    println!("{{\"ops\":{ops},\"ns\":{ns},\"peak_kib\":{}}}", peak_kib()?);
    Ok(())
}
