//! One look at all processes and the machine.

use crate::around::cgroup;
use crate::around::family::{self, Identity, Member};
use crate::around::stall::Stall;
use crate::base::output::printable_line;
use crate::base::units::monotonic_ns;
use crate::figures::less::Less;
use crate::figures::memory::Memory;
use crate::figures::released::Released;
use crate::inspect::list::{self, Seen};
use crate::inspect::page::Page;
use procfs::Current;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// Figures that Weir tells of a process, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfWeir {
    pub memory: Memory,
    /// Since its start.
    pub released: Released,
    /// 0 none, 1 some, 2 severe.
    pub pressure: u64,
    /// What it would cost to have less memory.
    pub less: Option<Less>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// As [`Identity::started`].
    pub started: u64,
    pub parent: i32,
    pub command: String,
    pub resident_bytes: u64,
    pub weir: Option<OfWeir>,
}

impl Process {
    /// Which one it is.
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, started: self.started }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub processes: Vec<Process>,
    /// Processes of which it is not known whether they have Weir, or what it tells of them.
    pub unknown: usize,
    /// Memory of the machine, and what of it is used, bytes.
    pub machine: [u64; 2],
    pub stall: Option<Stall>,
}

impl Sample {
    /// Looks at everything now.
    pub fn now() -> Self {
        let list::Found { readable, others, not_allowed, not_opened } = list::all();
        let of = |Seen { stat, page, .. }: &Seen| {
            let identity = Identity { pid: stat.pid, started: stat.starttime };
            (identity, of_weir(page, stat.rss * procfs::page_size()))
        };
        let mut with_weir: HashMap<Identity, OfWeir> = readable.iter().map(of).collect();
        let process = |member: Member| Process {
            weir: with_weir.remove(&Identity { pid: member.pid, started: member.started }),
            pid: member.pid,
            started: member.started,
            parent: member.parent,
            command: printable_line(&member.command),
            resident_bytes: member.resident_bytes,
        };
        Self {
            processes: family::everybody().into_iter().map(process).collect(),
            unknown: others.len() + not_allowed + not_opened.len(),
            machine: machine(),
            stall: Stall::of_machine(),
        }
    }
}

/// Figures from the page of a process with so many resident bytes.
pub fn of_weir(page: &Page, resident_bytes: u64) -> OfWeir {
    OfWeir {
        memory: Memory::of(page, resident_bytes, monotonic_ns()),
        released: Released::by([&**page]),
        pressure: page.pressure_level.load(Relaxed),
        less: Less::of(page),
    }
}

fn machine() -> [u64; 2] {
    let Ok(info) = procfs::Meminfo::current() else { return [0, 0] };
    [info.mem_total, info.mem_total.saturating_sub(info.mem_available.unwrap_or(info.mem_free))]
}

/// The cgroup of a process, and how long its tasks wait for memory. None where that is the machine's.
pub fn stall_of_group(pid: i32) -> Option<(String, Stall)> {
    let process = procfs::process::Process::new(pid).ok()?;
    let file = cgroup::pressure_file(&process)?;
    let name = printable_line(&file.parent()?.file_name()?.to_string_lossy());
    Some((name, Stall::read(&file)?))
}

/// Processes for tests.
#[cfg(test)]
pub mod example {
    use super::*;

    /// A process; one with Weir has half of its memory live, a quarter idle, an eighth each fragmented and not Weir's.
    pub fn process(pid: i32, parent: i32, command: &str, resident_bytes: u64, has_weir: bool) -> Process {
        let all = resident_bytes;
        let memory = Memory { resident_bytes, measured_ns_ago: Some(1), ..Memory::default() };
        let memory = memory.with_parts([all / 2, all / 4, all / 8, 0, 0, all / 8]);
        let released = Released::from([5 << 20, 1 << 20, 0, 2 << 20]);
        let weir = has_weir.then_some(OfWeir { memory, released, pressure: 1, less: None });
        Process { pid, started: 0, parent, command: command.to_owned(), resident_bytes, weir }
    }
}
