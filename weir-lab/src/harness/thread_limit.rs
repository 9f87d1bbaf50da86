//! How many threads this machine lets one process have.

use std::fs::read_to_string;
use std::path::Path;

/// Left for everybody else on the machine.
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
    let system = |path| file(Path::new(path));
    // A thread's stack and its guard are a mapping each.
    let mappings = system("/proc/sys/vm/max_map_count").map(|count| count / 2);
    let named = [
        (system("/proc/sys/kernel/pid_max"), "kernel.pid_max"),
        (system("/proc/sys/kernel/threads-max"), "kernel.threads-max"),
        (mappings, "vm.max_map_count"),
        (of_the_user(), "the user's limit (ulimit -u)"),
        (of_the_cgroup().as_deref().and_then(file), "the cgroup's pids.max"),
    ];
    named.into_iter().filter_map(|(limit, name)| Some((limit?, name))).collect()
}

/// Root is not held to it.
fn of_the_user() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills `limit`; geteuid only answers.
    let known = unsafe { libc::geteuid() != 0 && libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) == 0 };
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn of_the_cgroup() -> Option<std::path::PathBuf> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let find = |controller: &str| {
        let line = groups.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
        Some(line.splitn(3, ':').nth(2)?.trim_start_matches('/').to_string())
    };
    let v1 = find("pids").map(|path| Path::new("/sys/fs/cgroup/pids").join(path).join("pids.max"));
    let v2 = find("").map(|path| Path::new("/sys/fs/cgroup").join(path).join("pids.max"));
    [v1, v2].into_iter().flatten().find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    #[test]
    fn ten_threads_are_no_trouble_and_a_thousand_million_are() {
        assert_eq!(super::allows(10), Ok(()));
        assert!(super::allows(1_000_000_000).is_err());
    }
}
