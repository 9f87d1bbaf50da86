//! E2, what squeezing costs at worst: `dd` onto a volume in memory through a real client, with pools that keep 1,024 pages
//! and with pools that keep none.

mod client;
mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::nbd_servers::weir_nbd;
use crate::peers::Allocator;
use client::Client;
use serde_json::{Value, json};

/// Bytes that are written: 131,072 blocks of 4 KiB, as the document's.
const FULL: u64 = 512 << 20;
const QUICK: u64 = 32 << 20;

/// Runs it and prints its table.
pub fn run(args: &RunArgs, _allocators: Vec<Allocator>) -> Result<Value, String> {
    let found = weir_nbd().and_then(|_| Client::choose());
    let (client, skipped) = match found {
        Ok(found) => found,
        Err(missing) => {
            println!("e2 is skipped. What is missing:\n\n- {missing}\n");
            return Ok(json!({ "skipped": missing }));
        }
    };
    skipped.iter().for_each(|why| println!("Not the client: {why}"));
    let _lock = crate::harness::exclusive::lock()?;
    let bytes = if args.quick { QUICK } else { FULL };
    let done = measure::all(args.rounds, client, bytes)?;
    report::print(client, bytes, &done);
    Ok(report::as_json(client, bytes, &done))
}
