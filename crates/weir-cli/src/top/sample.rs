//! One look at all processes and the machine.

use crate::around::cgroup;
use crate::around::family::{self, Identity, Member};
use crate::around::stall::Stall;
use crate::base::output::printable_line;
use crate::inspect::list::{self, Seen};
use crate::inspect::page::Page;
use crate::processes::clock::monotonic_ns;
use crate::stat::breakdown::Breakdown;
use procfs::Current;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// The causes by which memory is released, in the order of the page's counters.
pub const CAUSES: [&str; 4] = ["idle", "pressure", "limit", "asked"];

/// What Weir tells of a process, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfWeir {
    pub memory: Breakdown,
    /// Released since its start, by cause.
    pub released: [u64; 4],
    /// 0 none, 1 some, 2 severe.
    pub pressure: u64,
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

    /// Bytes that it released, by any cause.
    pub fn released_bytes(&self) -> u64 {
        self.weir.as_ref().map_or(0, |weir| weir.released.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes)))
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub processes: Vec<Process>,
    /// Memory of the machine, and what of it is used, bytes.
    pub machine: [u64; 2],
    pub stall: Option<Stall>,
}

impl Sample {
    /// Looks at everything now.
    pub fn now() -> Self {
        let mut with_weir: HashMap<Identity, OfWeir> = HashMap::new();
        for Seen { stat, page, .. } in &list::all().readable {
            let identity = Identity { pid: stat.pid, started: stat.starttime };
            with_weir.insert(identity, of_weir(page, stat.rss * procfs::page_size()));
        }
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
            machine: machine(),
            stall: Stall::of_machine(),
        }
    }
}

/// What its page tells, of a process with so many resident bytes.
pub fn of_weir(page: &Page, resident_bytes: u64) -> OfWeir {
    OfWeir {
        memory: Breakdown::of(page, resident_bytes, monotonic_ns()),
        released: page.given_back.each_ref().map(|bytes| bytes.load(Relaxed)),
        pressure: page.pressure_level.load(Relaxed),
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
