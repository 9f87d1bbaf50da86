//! `demonstration`: redis under load with `weir top` beside it, another program that needs memory, and what happens; recorded
//! as an asciicast (`--cast`) and drawn (`--svg`).

mod drawing;
mod scene;
mod terminal;

use crate::harness::args::RunArgs;
use crate::harness::tables::{Table, mib, short, spread};
use crate::harness::{cgroup, programs};
use crate::peers::{Allocator, WEIR};
use scene::{Play, Told};
use serde_json::{Value, json};
use std::path::Path;

/// Runs it and prints what it came to.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let weir = allocators.iter().find(|a| a.name == WEIR).ok_or("Weir is not here: cargo build --release")?;
    let command = weir.preload.as_deref().and_then(Path::parent).map(|beside| beside.join("weir"));
    let mut missing: Vec<String> = programs::missing_root("a cgroup needs it").into_iter().collect();
    missing.extend(programs::missing(&[("redis-server", "redis-server")]));
    missing.extend(cgroup::version().err());
    let command = match command.filter(|file| file.exists()) {
        Some(command) if missing.is_empty() => command,
        found => {
            missing.extend(found.is_none().then(|| "weir beside libweir.so: cargo build --release".into()));
            println!("demonstration is skipped. What is missing:\n\n- {}\n", missing.join("\n- "));
            return Ok(json!({ "skipped": missing }));
        }
    };
    let play = if args.quick { Play::QUICK } else { Play::FULL };
    let told = scene::play(&play, weir, &command)?;
    for (path, text) in [(&args.cast, told.recording.cast()), (&args.svg, drawing::svg(&told.pictures))] {
        if let Some(path) = path {
            std::fs::write(path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))?;
            println!("written: {}\n", path.display());
        }
    }
    print(&play, &told);
    Ok(json!({
        "resident_before": told.resident_before, "resident_after": told.resident_after, "released_s": told.released_s,
        "sets_before": told.before.json(), "sets_during": told.during.json(), "sets_after": told.after.json(),
    }))
}

fn print(play: &Play, told: &Told) {
    println!(
        "redis-server on Weir in a cgroup of {} MiB: {} MiB of values are written and deleted while one client sets small \
         ones all the\ntime. For the demonstration idle memory is kept for 12 s and more (`idle_ms=12000`), so that pressure alone \
         releases it. Then\nanother program in the cgroup takes {} MiB.\n",
        play.limit >> 20,
        play.values >> 20,
        play.need >> 20,
    );
    let mut table = Table::new(["", "before the other program", "while it takes memory", "after"]);
    let rate = |sample| spread(sample, |sets| short(sets / 1000.0));
    table.row(["1,000 SET a second".to_string(), rate(&told.before), rate(&told.during), rate(&told.after)]);
    let (before, after) = (mib(told.resident_before as f64), mib(told.resident_after as f64));
    table.row(["redis resident, MiB".to_string(), before, String::new(), after]);
    println!("{table}");
    println!(
        "Three quarters of what redis had idle were released {} s after the other program began.",
        short(told.released_s)
    );
}
