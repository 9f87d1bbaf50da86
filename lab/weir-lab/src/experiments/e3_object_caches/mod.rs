//! E3, object caches under back pressure: a file server whose I/O buffers of 4 to 128 KiB come from object caches, with
//! real clients over a socket; first without a limit of memory, then in a memory cgroup of a twentieth of it.

mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::peers::{Allocator, WEIR};
use measure::{
    ALL, FITTING, GROWTH_MS, MEMORY, PARTS, Stage, TURNS, WARM, as_json, free_rows, idle_case, measure, pressed_rows,
    tight,
};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let rounds = args.rounds;
    let ms = if args.quick { 1000 } else { 6000 };
    if let Some(unknown) = args.only.iter().find(|only| !PARTS.contains(&only.as_str())) {
        return Err(format!("'{unknown}' is no part of e3: there are {}", PARTS.join(", ")));
    }
    let asked = |part: &str| args.only.iter().any(|only| only == part) || (args.only.is_empty() && part != "growth");
    let stage = Stage::make()?;
    let weir = allocators.iter().find(|allocator| allocator.name == WEIR).ok_or("Weir is not here")?;
    let mut free = free_rows(&allocators);
    if asked("free") {
        measure(&stage, &mut free, rounds, ms / 2, (ALL, None))?;
        report::throughput(&free);
    }
    let mut pressed = Vec::new();
    let mut growth = pressed_rows(weir).split_off(2);
    if asked("twentieth") || asked("growth") {
        match tight(args) {
            Ok(_swap) => {
                let loads = [TURNS].into_iter().chain(FITTING).take(if args.quick { 1 } else { 3 });
                for load in loads.filter(|_| asked("twentieth")) {
                    let mut rows = pressed_rows(weir);
                    measure(&stage, &mut rows, rounds, ms, (load, Some(MEMORY / 20)))?;
                    report::pressed(&rows, load, MEMORY / 20);
                    pressed.push(rows);
                }
                if asked("growth") {
                    let ms = if args.quick { ms } else { GROWTH_MS };
                    measure(&stage, &mut growth, 1, ms, (TURNS, Some(MEMORY / 20)))?;
                    report::growth(&growth, TURNS, MEMORY / 20);
                }
            }
            Err(why) => println!("A twentieth of the memory is left out: {why}.\n"),
        }
    }
    let idle = asked("idle").then(|| idle_case(&stage, weir, ms)).transpose()?;
    if let Some(idle) = &idle {
        report::idle(idle, WARM);
    }
    Ok(as_json(&free, &pressed, &growth, idle.as_ref()))
}
