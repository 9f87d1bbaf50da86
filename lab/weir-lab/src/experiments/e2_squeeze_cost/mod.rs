//! E2, what squeezing costs at worst: blocks of 4 KiB onto a volume in memory through a real client, with pools that keep 1,024
//! pages and with pools that keep none.

mod client;
mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::nbd_servers::Kind;
use crate::peers::Allocator;
use serde_json::{Value, json};

/// Bytes that are written: 131,072 blocks of 4 KiB, as the document's.
const FULL: u64 = 512 << 20;
const QUICK: u64 = 32 << 20;
/// Rounds after which it is over even if the spread is still wide.
const MOST_ROUNDS: u32 = 60;

/// Runs it and prints its table.
pub fn run(args: &RunArgs, _allocators: Vec<Allocator>) -> Result<Value, String> {
    let missing: Vec<String> = client::missing().into_iter().chain(Kind::Weir.missing()).collect();
    if !missing.is_empty() {
        println!("e2 is skipped. What is missing:\n\n- {}\n", missing.join("\n- "));
        return Ok(json!({ "skipped": missing }));
    }
    let _lock = crate::harness::exclusive::lock()?;
    let (bytes, most) = if args.quick { (QUICK, args.rounds) } else { (FULL, MOST_ROUNDS) };
    let done = measure::all(args.rounds, most, bytes)?;
    report::print(bytes, &done);
    Ok(report::as_json(bytes, &done))
}
