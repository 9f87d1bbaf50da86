//! The table of all processes with Weir.

use crate::base::descriptors::TOO_MANY;
use crate::base::output::printable_line;
use crate::base::table::{head, row};
use crate::base::units::{bytes, monotonic_ns};
use crate::figures::processes::{Line, Table, Unreadable};
use crate::figures::released::Released;
use crate::inspect::list::{Found, Seen};
use crate::inspect::page::Missing;
use std::fmt;

impl Table {
    /// The table of the processes found, largest first.
    pub fn of(found: Found) -> Self {
        let line = |seen: &Seen| Line {
            pid: seen.stat.pid,
            command: seen.stat.comm.clone(),
            memory: seen.memory(),
            released_bytes: Released::by([&*seen.page]).total(),
        };
        let mut processes: Vec<Line> = found.readable.iter().map(line).collect();
        processes.sort_by_key(|line| std::cmp::Reverse(line.memory.resident_bytes));
        let why = |(pid, why): (i32, Missing)| Unreadable { pid, why: why.to_string() };
        let unreadable = found.others.into_iter().map(why).collect();
        let (not_allowed, too_many_files) = (found.not_allowed, found.not_opened.len());
        Self { at_ns: Some(monotonic_ns()), processes, unreadable, not_allowed, too_many_files }
    }
}

/// The widths of a process's columns: the last one's is that of the blank before it, too.
const WIDTHS: [isize; 10] = [8, 11, 11, 11, 11, 11, 11, 11, 11, -8];

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "PID",
            "RESIDENT",
            "LIVE",
            "IDLE",
            "FRAGMENTED",
            "MERGED",
            "METADATA",
            "NOT WEIR'S",
            "RELEASED",
            " COMMAND",
        ];
        f.write_str(&head(WIDTHS, names))?;
        for Line { pid, command, memory, released_bytes } in &self.processes {
            let parts = memory.parts().map_or_else(|| [(); 6].map(|()| "unknown".into()), |parts| parts.map(bytes));
            let [live, idle, fragmented, merged, metadata, others] = parts;
            let [resident, released] = [memory.resident_bytes, *released_bytes].map(bytes);
            let command = format!(" {}", printable_line(command));
            let cells =
                [pid.to_string(), resident, live, idle, fragmented, merged, metadata, others, released, command];
            f.write_str(&row(WIDTHS, cells))?;
        }
        for Unreadable { pid, why } in &self.unreadable {
            writeln!(f, "{pid:>8} {why}")?;
        }
        match self.too_many_files {
            0 => {}
            1 => writeln!(f, "1 process could not be looked at: {TOO_MANY}")?,
            more => writeln!(f, "{more} processes could not be looked at: {TOO_MANY}")?,
        }
        if self.processes.is_empty() && self.unreadable.is_empty() && self.too_many_files == 0 {
            writeln!(f, "no process with Weir was found: `weir run PROGRAM` starts one")?;
        }
        match self.not_allowed {
            0 => Ok(()),
            1 => writeln!(f, "1 process may not be looked into: it is another user's, or guards itself"),
            more => writeln!(f, "{more} processes may not be looked into: they are other users', or guard themselves"),
        }
    }
}
