//! `power-cut`: what weir-nbd has acknowledged as flushed is there after the server was killed, and after the drive below it
//! lost power with whatever it had not made safe.

mod drive;
mod filesystem;
mod model;
mod report;
mod rounds;
mod writers;

use crate::harness::args::RunArgs;
use crate::harness::{block_device, fio, nbd_servers, programs};
use crate::peers::Allocator;
use rounds::{Done, Stand};
use serde_json::{Value, json};

/// The plugin of the drive is in Python.
const PYTHON_PLUGIN: &str = "nbdkit-plugin-python: apt-get install nbdkit-plugin-python";

/// Runs it and prints its table.
pub fn run(args: &RunArgs, _allocators: Vec<Allocator>) -> Result<Value, String> {
    let missing = missing();
    if !missing.is_empty() {
        println!("power-cut is skipped. What is missing:\n\n- {}\n", missing.join("\n- "));
        return Ok(json!({ "skipped": missing }));
    }
    let mut stand = Stand::make(0x5eed)?;
    let mut all: Vec<Done> = Vec::new();
    for round in 0..args.rounds {
        let done = stand.round(round).map_err(|why| format!("round {round}: {why}"))?;
        if let Some(why) = &done.wrong {
            eprintln!(
                "power-cut, round {round}, {}, {}, {:?}: {why}",
                done.load.name(),
                done.server.join(" "),
                done.cut
            );
        }
        all.push(done);
        if (round + 1) % 100 == 0 {
            eprintln!("power-cut: {} rounds", round + 1);
        }
    }
    report::print(&all);
    let wrong: Vec<&String> = all.iter().filter_map(|done| done.wrong.as_ref()).collect();
    match wrong.first() {
        None => Ok(json!({ "rounds": all.len() })),
        Some(first) => Err(format!("{} of {} rounds lost something: {first}", wrong.len(), all.len())),
    }
}

fn missing() -> Vec<String> {
    let mut missing: Vec<String> =
        programs::missing_root("FUSE, loop devices and mounts need it").into_iter().collect();
    missing.extend(nbd_servers::Kind::Weir.missing());
    missing.extend(nbd_servers::Kind::Nbdkit.missing());
    missing.extend(programs::missing(&[fio::PROGRAM]));
    missing.extend(programs::missing(&filesystem::PROGRAMS));
    missing.extend(programs::missing(&block_device::PROGRAMS));
    missing.extend(block_device::missing_devices());
    if missing.is_empty() && programs::run("nbdkit", &["--dump-plugin", "python"]).is_err() {
        missing.push(PYTHON_PLUGIN.into());
    }
    missing
}
