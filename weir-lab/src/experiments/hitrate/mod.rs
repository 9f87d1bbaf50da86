//! The policy of evictable caches (`weir_core::evict`) against other caches, at equal numbers of entries: hit rates over
//! traces made from seeds and over those given, and what a hit and an insertion cost.

mod cache;
mod caches;
mod measure;
mod report;
mod speed;
mod traces;
mod weir_shard;

use crate::harness::args::RunArgs;
use crate::peers::Allocator;
use serde_json::{Value, json};

/// Runs it and prints its tables. The allocators play no part.
pub fn run(args: &RunArgs, _: Vec<Allocator>) -> Result<Value, String> {
    let mut rows = Vec::new();
    for source in traces::choose(args)? {
        let trace = source.read(args.quick)?;
        eprintln!("hitrate, {}: {} accesses", trace.name, trace.keys.len());
        rows.extend(measure::measure(&trace, args.quick));
    }
    report::print(&rows);
    let costs = speed::measure(args.quick, args.rounds);
    report::print_costs(&costs);
    Ok(json!({ "rows": measure::as_json(&rows), "costs": speed::as_json(&costs) }))
}
