//! `weir-lab-load`: the programs that are measured, one a run, under whatever malloc is preloaded.
//!
//! `weir-lab-load list` names the workloads; `weir-lab-load NAME [key=value ...]` runs one and prints its result as
//! one line of JSON. The harness is another program, so its own allocations are never in a measurement.
#![allow(clippy::print_stdout)]

mod base;
mod programs;
mod table;

use base::process::{end_with_the_harness, peak_kib};
use base::run::Run;
use programs::*;

fn main() {
    end_with_the_harness();
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let result = match name.as_str() {
        "list" => {
            table::print();
            Ok(())
        }
        "neighbour" => neighbour::main(args),
        "many-threads" => many_threads::main(args),
        "latency" => latency::main(args),
        "big-heap" => big_heap::main(args),
        "calls" => calls::main(args),
        "file-server" => file_server::server(args),
        "file-clients" => file_server::clients(args),
        "forward" => forward::main(args),
        "guest-init" => guest_init::main(args),
        "hog" => hog::main(args),
        "huge-heap" => huge_heap::main(args),
        "page-fault" => page_fault::main(args),
        "page-pools" => page_pools::main(args),
        "report-time" => report_time::main(args),
        "scan" => scan::main(args),
        "soak" => soak::main(args),
        "stream" => stream::main(args),
        "stripes" => stripes::main(args),
        "sweep" => sweep::main(args),
        "sweep-calls" => sweep_calls::main(args),
        "swing" => swing::main(args),
        "watched" => watched::main(args),
        _ => measure(&name, args),
    };
    if let Err(why) = result {
        eprintln!("weir-lab-load: {why}");
        std::process::exit(2);
    }
}

/// Runs one workload of the table and says what it did and how long that took.
fn measure(name: &str, args: impl Iterator<Item = String>) -> Result<(), String> {
    let workload = table::find(name).ok_or_else(|| format!("no workload is called '{name}': see `weir-lab list`"))?;
    let mut run = Run { threads: workload.threads.count(), ..Run::default() };
    run.read_args(args)?;
    let start = std::time::Instant::now();
    let ops = (workload.work)(&run);
    let ns = start.elapsed().as_nanos();
    if ops == 0 {
        return Err(format!("{name} did no operation in its time"));
    }
    println!("{{\"ops\":{ops},\"ns\":{ns},\"threads\":{},\"peak_kib\":{}}}", run.threads, peak_kib()?);
    Ok(())
}
