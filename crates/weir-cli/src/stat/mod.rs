//! `weir stat`: where the memory of running processes is.

pub mod asked;
pub mod breakdown;
pub mod processes;
pub mod report;
mod watch;

use crate::base::failure::Failure;
use crate::base::{json, output};
use crate::command_line::StatOptions;
use crate::inspect::list;
use crate::inspect::page::{Inspected, Missing};
use report::Report;
use serde::Serialize;

/// Prints the figures, once or again and again.
pub fn stat(options: &StatOptions) -> Result<i32, Failure> {
    match options.watch {
        None => print(options, false).map(|()| 0),
        Some(interval) => watch::watch(interval, || print(options, true)).map(|()| 0),
    }
}

fn print(options: &StatOptions, again: bool) -> Result<(), Failure> {
    let text = match options.pid {
        Some(pid) => {
            let why = |why: Missing| why.of(pid);
            let inspected = Inspected::new(pid).map_err(why)?;
            let report = Report::of(&inspected, asked::read(&inspected).map_err(why)?);
            if options.json { written(&report, again) } else { Ok(report.text(options.all)) }
        }
        None => {
            let table = processes::Table::of(list::all());
            if options.json { written(&table, again) } else { Ok(table.to_string()) }
        }
    }?;
    output::print(&if again && !options.json { watch::page(&text) } else { text })
}

/// One value: over several lines, or on one where more follow.
fn written(value: &impl Serialize, again: bool) -> Result<String, Failure> {
    if again { json::line(value).map(|text| text + "\n") } else { json::pretty(value) }
}
