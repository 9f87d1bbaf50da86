//! Weir's evictable caches against other caches, at equal numbers of entries: hit rates over traces made from seeds and
//! over those given, what a hit and an insertion cost, and what several threads do at once.

mod cache;
mod caches;
mod measure;
mod report;
mod speed;
mod traces;
mod weir_cache;

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
    let throughput = speed::throughput(args.quick, args.rounds);
    report::print_throughput(&throughput);
    let (costs, throughput) = (speed::as_json(&costs), speed::throughput_as_json(&throughput));
    Ok(json!({ "rows": measure::as_json(&rows), "costs": costs, "throughput": throughput }))
}
