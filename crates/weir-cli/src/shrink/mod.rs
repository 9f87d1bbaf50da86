//! `weir shrink`: the limit of a cgroup is lowered once its processes have given memory back, and not before.

mod handshake;
mod member;

pub use crate::around::group::Group;
pub use handshake::{Given, Outcome, give, shrink, used};
pub use member::Holder;

use crate::base::failure::{Failure, Kind};
use crate::base::output::printable_line;
use crate::base::parallel::each;
use crate::base::table::{head, row};
use crate::base::units::{bytes, nanoseconds};
use crate::base::{json, output};
use crate::command_line::ShrinkOptions;
use crate::inspect::control::{ASKING, AT_ONCE, ONES_PATIENCE, apart};
use member::Member;
use std::fmt;
use std::time::Instant;

/// Processes that are printed, those that hold most.
const MOST_LINES: usize = 20;

/// What a process was asked for. It may grow again when this is dropped.
pub struct Asked {
    /// Its connection, with which its target ends.
    _member: Member,
}

/// Asks each of these processes to hold so many bytes less than now, the cheapest of them, as long as its answer lives. They begin
/// at once. Those that do not answer are waited for at the same time, and keep no other waiting for long.
pub fn ask_each(all: &[(i32, u64)]) -> Vec<Result<Asked, Failure>> {
    let begun = Instant::now();
    let ask = |&(pid, bytes): &(i32, u64)| {
        let mut member = Member::of(pid, ONES_PATIENCE, Some(begun + ASKING)).ok_or("it has ended")?;
        member.take(bytes);
        member.silent().map_or(Ok(Asked { _member: member }), Err)
    };
    let failed = |pid, why| Failure::of(Kind::Refused, format!("process {pid} gives nothing: {why}"));
    let asked = apart(|| each(all, AT_ONCE, ask));
    all.iter().zip(asked).map(|((pid, _), asked)| asked.map_err(|why| failed(pid, why))).collect()
}

/// Carries it out, and prints what came of it.
pub(crate) fn command(options: &ShrinkOptions) -> Result<i32, Failure> {
    let outcome = shrink(&options.cgroup, options.to, options.timeout)?;
    output::print(&if options.json { json::pretty(&outcome)? } else { outcome.to_string() })?;
    if outcome.missing_bytes == 0 {
        return Ok(0);
    }
    let why = format!(
        "{} are missing below {}: the limit of {} is as it was",
        bytes(outcome.missing_bytes),
        bytes(outcome.to_bytes),
        outcome.directory.display()
    );
    Err(Failure::of(Kind::NotEnough, why))
}

/// The widths of a process's columns.
const WIDTHS: [isize; 6] = [8, 11, 11, 11, 11, -8];

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.processes.iter().fold(0, |sum: u64, it| sum.saturating_add(it.given_bytes));
        let [charged, files, kernel] = [self.charged_bytes, self.file_bytes, self.kernel_bytes].map(bytes);
        let [droppable, to, given] = [self.droppable_bytes, self.to_bytes, given].map(bytes);
        let limit = match (self.missing_bytes, self.limit_before_bytes) {
            (0, _) => to,
            (_, Some(before)) => format!("{}, not {to}", bytes(before)),
            (_, None) => format!("none, not {to}"),
        };
        writeln!(
            f,
            "limit {limit}; used {charged}, of it files {files} (the kernel drops {droppable}), the kernel itself {kernel}; \
             given {given} in {}",
            nanoseconds(self.took_ns)
        )?;
        f.write_str(&head(WIDTHS, ["PID", "RESIDENT", "GIVEN", "LIVE", "IDLE", " COMMAND"]))?;
        for it in self.processes.iter().take(MOST_LINES) {
            let known = |figure: Option<u64>| figure.map_or("-".to_owned(), bytes);
            let [resident, given] = [it.resident_bytes, it.given_bytes].map(bytes);
            let why = it.not_asked.as_ref().map_or(String::new(), |why| format!(" ({})", printable_line(why)));
            let command = format!(" {}{why}", printable_line(&it.command));
            let cells = [it.pid.to_string(), resident, given, known(it.live_bytes), known(it.idle_bytes), command];
            f.write_str(&row(WIDTHS, cells))?;
        }
        match self.processes.len().saturating_sub(MOST_LINES) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more that hold less"),
        }
    }
}
