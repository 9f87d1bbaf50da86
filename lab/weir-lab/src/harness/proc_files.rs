//! Memory and faults of a process and of the machine, from `/proc`; in bytes.

use procfs::process::{Process, Stat, Status};
use procfs::{Current, Meminfo, ProcResult};

/// Bytes of a page (x86-64).
pub const PAGE: u64 = 4096;

/// Bytes of a process, exact at the time of the call.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    /// Resident.
    pub rss: u64,
    /// Swapped out.
    pub swap: u64,
    /// Resident in huge pages.
    pub huge: u64,
}

impl ProcessMemory {
    /// Resident or swapped out.
    pub fn held(self) -> u64 {
        self.rss + self.swap
    }
}

/// Reads a file of a process. An error says which file: of a process that has ended it is not found.
fn of_process<T>(pid: u32, read: impl Fn(&Process) -> ProcResult<T>) -> Result<T, String> {
    Process::new(pid as i32).and_then(|process| read(&process)).map_err(|why| why.to_string())
}

/// From `smaps_rollup`, which walks the page tables: `statm` is a batch of pages a CPU behind.
pub fn memory(pid: u32) -> Result<ProcessMemory, String> {
    let rollup = of_process(pid, Process::smaps_rollup)?.memory_map_rollup.0;
    let fields = rollup.first().map(|map| &map.extension.map);
    let field = |name: &str| fields.and_then(|fields| fields.get(name).copied());
    Ok(ProcessMemory {
        rss: field("Rss").ok_or_else(|| format!("/proc/{pid}/smaps_rollup has no Rss"))?,
        swap: field("Swap").unwrap_or(0),
        huge: field("AnonHugePages").unwrap_or(0),
    })
}

/// The high mark of a process's resident set.
pub fn peak(pid: u32) -> Result<u64, String> {
    peak_in(&of_process(pid, Process::status)?)
}

/// The same from a `/proc/PID/status` that was read before.
pub fn peak_in(status: &Status) -> Result<u64, String> {
    status.vmhwm.map(|kib| kib * 1024).ok_or_else(|| format!("/proc/{}/status has no VmHWM", status.pid))
}

/// Resident bytes of a process that are not of a file. `None` if it has ended.
pub fn anonymous(pid: u32) -> Option<u64> {
    of_process(pid, Process::status).ok()?.rssanon.map(|kib| kib * 1024)
}

/// Minor faults of a process and of those of its children that it has waited for.
pub fn minor_faults(pid: u32) -> Result<u64, String> {
    let stat: Stat = of_process(pid, Process::stat)?;
    Ok(stat.minflt + stat.cminflt)
}

/// Processor time that a process has used, all its threads and the kernel's on their behalf.
pub fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let stat: Stat = of_process(pid, Process::stat)?;
    Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// Whether a file is mapped by a process.
pub fn maps_file(pid: u32, is_file: impl Fn(&std::path::Path) -> bool) -> Result<bool, String> {
    use procfs::process::MMapPath;
    let maps = of_process(pid, Process::maps)?;
    Ok(maps.iter().any(|map| matches!(&map.pathname, MMapPath::Path(path) if is_file(path))))
}

/// The children of all threads of a process. None if it has ended.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = of_process(pid, Process::tasks).into_iter().flatten().flatten();
    tasks.flat_map(|task| task.children().unwrap_or_default()).collect()
}

/// Bytes that are free or can be freed without swapping.
pub fn available_memory() -> Result<u64, String> {
    let memory = Meminfo::current().map_err(|why| why.to_string())?;
    memory.mem_available.ok_or_else(|| "/proc/meminfo has no MemAvailable".into())
}

/// One of the machine's counters.
pub fn vmstat(name: &str) -> Result<u64, String> {
    let counters = procfs::vmstat().map_err(|why| why.to_string())?;
    let counter = counters.get(name).and_then(|&count| u64::try_from(count).ok());
    counter.ok_or_else(|| format!("/proc/vmstat has no {name}"))
}

/// The machine's swap traffic since boot, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwapTraffic {
    /// Pages read back.
    pub pages_in: u64,
    /// Pages written out.
    pub pages_out: u64,
}

impl SwapTraffic {
    /// Since boot until now.
    pub fn now() -> Result<SwapTraffic, String> {
        Ok(SwapTraffic { pages_in: vmstat("pswpin")?, pages_out: vmstat("pswpout")? })
    }

    /// Since `earlier`.
    pub fn since(self, earlier: SwapTraffic) -> SwapTraffic {
        SwapTraffic { pages_in: self.pages_in - earlier.pages_in, pages_out: self.pages_out - earlier.pages_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_has_memory_and_faults() {
        let own = std::process::id();
        assert!(memory(own).unwrap().rss > PAGE);
        assert!(minor_faults(own).unwrap() > 10);
        assert!(cpu_seconds(own).unwrap() >= 0.0);
        assert!(peak(own).unwrap() >= anonymous(own).unwrap());
        assert!(available_memory().unwrap() > 1 << 20 && vmstat("pgfault").unwrap() > 10);
        let exe = std::env::current_exe().unwrap();
        assert_eq!(maps_file(own, |path| path == exe), Ok(true));
        assert_eq!(maps_file(own, |path| path.ends_with("no-such-file")), Ok(false));
    }

    #[test]
    fn a_child_is_found_and_after_its_end_an_error_names_it() {
        let shell = Command::new("sh").args(["-c", "sleep 60 & echo; wait"]).stdout(Stdio::piped()).spawn();
        let mut shell = crate::harness::child::KilledOnDrop(shell.unwrap());
        // The line comes after the fork.
        std::io::Read::read_exact(&mut shell.0.stdout.take().unwrap(), &mut [0]).unwrap();
        let pid = shell.0.id();
        let grandchildren = children(pid);
        assert_eq!(grandchildren.len(), 1);
        // SAFETY: a signal to a child of this test's child, which is not waited for before it ends.
        unsafe { libc::kill(grandchildren[0] as i32, libc::SIGKILL) };
        drop(shell);
        for error in [memory(pid).unwrap_err(), peak(pid).unwrap_err(), minor_faults(pid).unwrap_err()] {
            assert!(error.contains(&format!("/proc/{pid}")), "{error}");
        }
        assert_eq!((anonymous(pid), children(pid)), (None, vec![]));
    }

    #[test]
    fn a_process_of_another_user_is_an_error_that_says_so() {
        // SAFETY: geteuid takes and changes nothing.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: only root can become another user");
            return;
        }
        let roots = crate::harness::child::KilledOnDrop(Command::new("sleep").arg("60").spawn().unwrap());
        let pid = roots.0.id();
        let as_nobody = std::thread::spawn(move || {
            // SAFETY: the system call, unlike libc's function, changes the calling thread alone, which ends with this.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
            memory(pid)
        });
        let error = as_nobody.join().unwrap().unwrap_err();
        assert!(error.contains("ermission") && error.contains("smaps_rollup"), "{error}");
    }
}
