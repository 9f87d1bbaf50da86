//! `weir stat`: where the memory of running processes is.

pub mod processes;
pub mod report;

use crate::base::failure::Failure;
use crate::base::{json, output};
use crate::command_line::StatOptions;
use crate::figures::processes::Table;
use crate::inspect::page::{Inspected, Missing};
use crate::inspect::{asked, list};
use report::Report;
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How long a process may take to measure; its figures are those of its last measurement then.
const PATIENCE: Duration = Duration::from_secs(3);

/// Prints the figures, once or again and again until a signal or an error ends it.
pub fn stat(options: &StatOptions) -> Result<i32, Failure> {
    let mut inspected = options.pid.map(|pid| Inspected::new(pid).map_err(|why| why.of(pid))).transpose()?;
    let Some(interval) = options.watch else {
        return output::print(&text(options, inspected.as_ref(), false)?).map(|()| 0);
    };
    let mut due = Instant::now();
    loop {
        let text = text(options, inspected.as_ref(), true)?;
        output::print(&if options.json { text } else { in_place(&text) })?;
        due += interval;
        match due.checked_duration_since(Instant::now()) {
            Some(rest) => std::thread::sleep(rest),
            // It takes longer than the interval: what was missed is not made up for.
            None => due = Instant::now(),
        }
        if let Some(it) = &mut inspected {
            it.look_again().map_err(|why| why.of(it.process.pid()))?;
        }
    }
}

/// The figures of one process, or of all.
fn text(options: &StatOptions, inspected: Option<&Inspected>, again: bool) -> Result<String, Failure> {
    let Some(inspected) = inspected else {
        let table = Table::of(list::all());
        return if options.json { written(&table, again) } else { Ok(table.to_string()) };
    };
    let why = |why: Missing| why.of(inspected.process.pid());
    let report = Report::of(inspected, asked::read(inspected, PATIENCE).map_err(why)?);
    if options.json { written(&report, again) } else { Ok(report.text(options.all)) }
}

/// One value: over several lines, or on one where more follow.
fn written(value: &impl Serialize, again: bool) -> Result<String, Failure> {
    if again { json::line(value).map(|text| text + "\n") } else { json::pretty(value) }
}

/// A text in place of the last one on a terminal; elsewhere after it, with a blank line between.
fn in_place(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return format!("{text}\n");
    }
    // To the upper left corner; each line is cleared behind its end, and so is all below the last.
    let lines: String = text.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}
