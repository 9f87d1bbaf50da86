//! Memory and faults of a process and of the machine, from `/proc`; in bytes.

use anyhow::{Context, Result};
use procfs::process::{MMapPath, Process};
use procfs::{Current, Meminfo, ProcResult};
use std::path::Path;

pub const PAGE: f64 = 4096.0;

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    pub rss: f64,
    pub swap: f64,
    /// The part of the resident set in huge pages.
    pub huge: f64,
}

impl ProcessMemory {
    /// Resident or swapped out.
    pub fn held(self) -> f64 {
        self.rss + self.swap
    }
}

fn of<T>(pid: u32, read: impl Fn(&Process) -> ProcResult<T>) -> Result<T> {
    Process::new(pid as i32).and_then(|process| read(&process)).with_context(|| format!("/proc/{pid}"))
}

/// Exact, by walking the process's page tables.
pub fn memory(pid: u32) -> Result<ProcessMemory> {
    let rollup = of(pid, Process::smaps_rollup)?.memory_map_rollup.0;
    let fields = &rollup.first().with_context(|| format!("/proc/{pid}/smaps_rollup is empty"))?.extension.map;
    let field = |name: &str| fields.get(name).copied().unwrap_or(0) as f64;
    Ok(ProcessMemory { rss: field("Rss"), swap: field("Swap"), huge: field("AnonHugePages") })
}

/// The resident set's high mark.
pub fn peak(pid: u32) -> Result<f64> {
    let peak = of(pid, Process::status)?.vmhwm;
    peak.map(|kib| kib as f64 * 1024.0).with_context(|| format!("/proc/{pid}/status has no VmHWM"))
}

/// Anonymous memory that is resident; none of a process that is gone.
pub fn anonymous(pid: u32) -> Option<f64> {
    of(pid, Process::status).ok()?.rssanon.map(|kib| kib as f64 * 1024.0)
}

/// Whether that is the name of a process.
pub fn is_named(pid: u32, name: &str) -> bool {
    of(pid, Process::stat).is_ok_and(|stat| stat.comm == name)
}

/// Minor faults of the process and of the children that it waited for.
pub fn minor_faults(pid: u32) -> Result<f64> {
    of(pid, Process::stat).map(|stat| (stat.minflt + stat.cminflt) as f64)
}

/// Processor time.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    of(pid, Process::stat).map(|stat| (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// Whether the process has mapped a file.
pub fn maps_file(pid: u32, is_file: impl Fn(&Path) -> bool) -> Result<bool> {
    let maps = of(pid, Process::maps)?;
    Ok(maps.iter().any(|map| matches!(&map.pathname, MMapPath::Path(path) if is_file(path))))
}

/// None of a process that is gone.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = of(pid, Process::tasks).into_iter().flatten().flatten();
    tasks.flat_map(|task| task.children().unwrap_or_default()).collect()
}

/// Memory that the machine can give without swapping.
pub fn available_memory() -> Result<f64> {
    Ok(Meminfo::current()?.mem_available.context("/proc/meminfo has no MemAvailable")? as f64)
}

/// Bytes that the machine has swapped in, and out.
pub fn swapped() -> Result<[f64; 2]> {
    let counters = procfs::vmstat()?;
    Ok(["pswpin", "pswpout"].map(|name| counters.get(name).copied().unwrap_or(0) as f64 * PAGE))
}

/// Pages of a process that the kernel has merged; 0 where it does not say.
pub fn merged_pages(pid: u32) -> f64 {
    std::fs::read_to_string(format!("/proc/{pid}/ksm_merging_pages"))
        .map_or(0.0, |text| text.trim().parse().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::child::KilledOnDrop;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_has_memory_and_faults() {
        let own = std::process::id();
        assert!(memory(own).unwrap().rss > PAGE && minor_faults(own).unwrap() > 10.0);
        assert!(cpu_seconds(own).unwrap() >= 0.0 && peak(own).unwrap() >= anonymous(own).unwrap());
        assert!(available_memory().unwrap() > PAGE && swapped().unwrap()[0] >= 0.0);
        let exe = std::env::current_exe().unwrap();
        assert!(maps_file(own, |path| path == exe).unwrap());
        assert!(!maps_file(own, |path| path.ends_with("no-such-file")).unwrap());
    }

    #[test]
    fn a_child_is_found_and_after_its_end_an_error_names_it() {
        let shell = Command::new("sh").args(["-c", "sleep 60 & echo; wait"]).stdout(Stdio::piped()).spawn();
        let mut shell = KilledOnDrop(shell.unwrap());
        std::io::Read::read_exact(&mut shell.0.stdout.take().unwrap(), &mut [0]).unwrap();
        let (pid, grandchildren) = (shell.pid(), children(shell.pid()));
        assert_eq!(grandchildren.len(), 1);
        crate::harness::machine::restore::kill(grandchildren[0]);
        drop(shell);
        for error in [memory(pid).unwrap_err(), peak(pid).unwrap_err(), minor_faults(pid).unwrap_err()] {
            assert!(format!("{error:#}").contains(&format!("/proc/{pid}")), "{error:#}");
        }
        assert_eq!((anonymous(pid), children(pid)), (None, vec![]));
    }
}
