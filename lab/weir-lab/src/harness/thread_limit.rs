//! How many threads this machine lets one process have.

use procfs::ProcessCGroup;
use procfs::process::Process;
use procfs::sys::{kernel, vm};
use std::fs::read_to_string;
use std::path::Path;

/// Threads left for all other processes on the machine.
const OTHERS: u64 = 1_000;

/// Whether a process may have that many, or which limit is in the way.
pub fn allows(threads: u64) -> Result<(), String> {
    let lowest = limits().into_iter().min_by_key(|(limit, _)| *limit);
    match lowest {
        Some((limit, name)) if threads + OTHERS > limit => Err(format!("{name} lets no more than {limit} be")),
        _ => Ok(()),
    }
}

fn limits() -> Vec<(u64, &'static str)> {
    let file = |path: &Path| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    // A thread's stack and its guard are a mapping each.
    let mappings = vm::max_map_count().ok().map(|count| count / 2);
    let named = [
        (kernel::pid_max().ok().and_then(|count| count.try_into().ok()), "kernel.pid_max"),
        (kernel::threads_max().ok().map(u64::from), "kernel.threads-max"),
        (mappings, "vm.max_map_count"),
        (of_the_user(), "the user's limit (ulimit -u)"),
        (of_the_cgroup().as_deref().and_then(file), "the cgroup's pids.max"),
    ];
    named.into_iter().filter_map(|(limit, name)| Some((limit?, name))).collect()
}

/// Root is not held to it.
fn of_the_user() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills `limit`; geteuid takes and changes nothing.
    let known = unsafe { libc::geteuid() != 0 && libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) == 0 };
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn of_the_cgroup() -> Option<std::path::PathBuf> {
    let groups = Process::myself().and_then(|process| process.cgroups()).ok()?;
    let limit = |group: ProcessCGroup| {
        // Version 2's only hierarchy is 0.
        let root = if group.hierarchy == 0 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/pids" };
        let is_of_pids = group.hierarchy == 0 || group.controllers.iter().any(|controller| controller == "pids");
        is_of_pids.then(|| Path::new(root).join(group.pathname.trim_start_matches('/')).join("pids.max"))
    };
    groups.into_iter().filter_map(limit).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    #[test]
    fn ten_threads_are_no_trouble_and_a_thousand_million_are() {
        assert_eq!(super::allows(10), Ok(()));
        assert!(super::allows(1_000_000_000).is_err());
    }
}
