//! The table of all processes with Weir.

use super::breakdown::Breakdown;
use crate::base::output::printable_line;
use crate::base::units::bytes;
use crate::inspect::list::{Found, Seen};
use crate::processes::clock::monotonic_ns;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
#[derive(Serialize)]
pub struct Table {
    /// When these figures were read, ns of the monotonic clock.
    at_ns: u64,
    processes: Vec<Line>,
    unreadable: Vec<Unreadable>,
    /// Processes that this user may not look into.
    not_allowed: usize,
}

#[derive(Serialize)]
struct Line {
    pid: i32,
    command: String,
    #[serde(flatten)]
    memory: Breakdown,
    released_bytes: u64,
}

#[derive(Serialize)]
struct Unreadable {
    pid: i32,
    why: String,
}

impl Table {
    /// Of what was found, largest first.
    pub fn of(found: Found) -> Self {
        let mut processes: Vec<Line> = found
            .readable
            .iter()
            .map(|Seen { stat, page, .. }| {
                let resident = stat.rss * procfs::page_size();
                let released = page.given_back.iter().map(|bytes| bytes.load(Relaxed));
                Line {
                    pid: stat.pid,
                    command: stat.comm.clone(),
                    memory: Breakdown::of(page, resident, monotonic_ns()),
                    released_bytes: released.fold(0, u64::saturating_add),
                }
            })
            .collect();
        processes.sort_by_key(|line| std::cmp::Reverse(line.memory.resident_bytes));
        let why = |(pid, why): (i32, crate::inspect::page::Missing)| Unreadable { pid, why: why.to_string() };
        Self {
            at_ns: monotonic_ns(),
            processes,
            unreadable: found.others.into_iter().map(why).collect(),
            not_allowed: found.not_allowed,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}  COMMAND",
            "PID", "RESIDENT", "LIVE", "IDLE", "FRAGMENTED", "METADATA", "NOT WEIR'S", "RELEASED"
        )?;
        for line in &self.processes {
            let it = &line.memory;
            let parts = [it.live_bytes, it.idle_bytes, it.fragmented_bytes, it.metadata_bytes, it.not_weirs_bytes];
            let parts = parts.map(|part| it.known(part).map_or("unknown".into(), bytes));
            write!(f, "{:>8} {:>11}", line.pid, bytes(it.resident_bytes))?;
            parts.into_iter().try_for_each(|part| write!(f, " {part:>11}"))?;
            write!(f, " {:>11}", bytes(line.released_bytes))?;
            writeln!(f, "  {}", printable_line(&line.command))?;
        }
        for Unreadable { pid, why } in &self.unreadable {
            writeln!(f, "{pid:>8} {why}")?;
        }
        if self.processes.is_empty() && self.unreadable.is_empty() {
            writeln!(f, "no process with Weir was found: `weir run PROGRAM` starts one")?;
        }
        match self.not_allowed {
            0 => Ok(()),
            1 => writeln!(f, "1 process may not be looked into: it is another user's"),
            more => writeln!(f, "{more} processes may not be looked into: they are other users'"),
        }
    }
}
