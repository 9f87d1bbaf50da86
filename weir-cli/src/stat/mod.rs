//! `weir stat`: where the memory of running processes is.

pub mod breakdown;
mod processes;
mod report;
mod watch;

use crate::base::failure::Failure;
use crate::base::output;
use crate::command_line::StatOptions;
use crate::inspect::list;
use crate::inspect::page::Inspected;
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
            let why = |why| Failure::of_weir(format!("process {pid}: {why}"));
            let inspected = Inspected::new(pid).map_err(why)?;
            let page = inspected.page().map_err(why)?;
            let report = Report::of(&inspected, &page);
            if options.json { json(&report, again) } else { Ok(report.to_string()) }
        }
        None => {
            let table = processes::Table::of(list::all());
            if options.json { json(&table, again) } else { Ok(table.to_string()) }
        }
    }?;
    output::print(&if again && !options.json { watch::page(&text) } else { text })
}

/// One value: over several lines, or on one where more follow.
fn json(value: &impl Serialize, again: bool) -> Result<String, Failure> {
    let text = if again { serde_json::to_string(value) } else { serde_json::to_string_pretty(value) };
    text.map(|text| text + "\n").map_err(|e| Failure::of_weir(format!("cannot write JSON: {e}")))
}
