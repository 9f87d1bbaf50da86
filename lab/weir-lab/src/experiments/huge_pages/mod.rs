//! Huge pages behind a heap: the share of it that they are behind, what a random walk over it costs (the proxy of misses in
//! the data TLB), and what filling it costs, kind of block by kind and in both settings of the kernel.

mod figures;
mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::{exclusive, huge_pages, rounds};
use crate::peers::{Allocator, WEIR};
use measure::{Cell, KINDS, Kind, Row, Size, as_json, asking, measure};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, mut allocators: Vec<Allocator>) -> Result<Value, String> {
    let kinds = KINDS.iter().map(|kind| kind.name);
    let known = || kinds.clone().chain(huge_pages::MODES);
    if let Some(unknown) = args.only.iter().find(|only| known().all(|name| name != only.as_str())) {
        let names: Vec<&str> = known().collect();
        return Err(format!("'{unknown}' is no kind of block and no setting of huge pages: {}", names.join(", ")));
    }
    let asking = allocators.iter().find(|allocator| allocator.name == WEIR).map(asking);
    allocators.extend(asking);
    let _lock = exclusive::lock()?;
    let size = Size::of(args.quick);
    let mut rows: Vec<Row> = Vec::new();
    for mode in modes(&args.only)? {
        let _restored = if huge_pages::found()? == mode { None } else { Some(huge_pages::set(&mode)?) };
        for kind in KINDS.iter().filter(|kind| chosen(&args.only, kind.name, kinds.clone())) {
            let cells = row(kind, &mode, size, &allocators, args.rounds);
            rows.push(Row { mode: mode.clone(), kind, cells });
        }
    }
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    report::print(&names, &args.subject, size, &rows);
    Ok(as_json(&names, &args.subject, args.rounds, size, &rows))
}

/// Whether `name` is among those asked for, if any of `all` is.
fn chosen<'a>(only: &[String], name: &str, mut all: impl Iterator<Item = &'a str>) -> bool {
    let is_named = |name: &str| only.iter().any(|only| only == name);
    is_named(name) || all.all(|other| !is_named(other))
}

/// The settings to measure. Where the setting cannot be changed, that is the present one, whatever was asked for.
fn modes(only: &[String]) -> Result<Vec<String>, String> {
    let mut modes = huge_pages::modes()?;
    if modes.len() > 1 {
        modes.retain(|mode| chosen(only, mode, huge_pages::MODES.into_iter()));
    }
    Ok(modes)
}

/// Rounds in which each allocator has its turn.
fn row(kind: &Kind, mode: &str, size: Size, allocators: &[Allocator], rounds: u32) -> Vec<Cell> {
    let mut cells: Vec<Cell> = allocators.iter().map(|_| Cell::default()).collect();
    for (round, turn) in rounds::of(rounds, allocators.len()) {
        let (allocator, cell) = (&allocators[turn], &mut cells[turn]);
        eprintln!("huge-pages, {mode}, {}, round {} of {rounds}: {}", kind.name, round + 1, allocator.name);
        if cell.failed.is_none()
            && let Err(why) = measure(kind, size, allocator, cell)
        {
            eprintln!("{}: {why}", allocator.name);
            cell.failed = Some(why);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_chosen_and_all_if_nothing_is() {
        let all = ["objects", "runs"];
        let chosen = |only: &[&str], name: &str| {
            let only: Vec<String> = only.iter().map(|only| only.to_string()).collect();
            chosen(&only, name, all.into_iter())
        };
        assert!(chosen(&[], "objects") && chosen(&["always"], "objects"));
        assert!(chosen(&["runs", "always"], "runs") && !chosen(&["runs", "always"], "objects"));
    }
}
