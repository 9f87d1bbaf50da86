//! What this process may do, and what it needs for what it was told to do.

use std::fs;
use std::path::Path;

/// Bits of a set of capabilities (capabilities(7)).
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;

/// A line for each right that is missing. `steers`: whether processes are asked for something, and not only read.
pub fn missing(steers: bool) -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    of(&status, is_host(Path::new("/proc")), steers)
}

/// Whether processes of the host are seen: the kernel's threads, or a first process in another group than this one. A node that is a
/// container itself, as with kind, has no threads of the kernel.
fn is_host(proc: &Path) -> bool {
    let text = |name: &str| fs::read_to_string(proc.join(name)).ok();
    let (first, own) = (text("1/cgroup"), text("self/cgroup"));
    text("2/comm").is_some_and(|name| name.trim() == "kthreadd") || first.is_some_and(|first| Some(first) != own)
}

/// `is_host`: whether the host's processes are seen.
fn of(status: &str, is_host: bool, steers: bool) -> Vec<String> {
    let word = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let set = word("CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0);
    let has = |bit: u32| set >> bit & 1 == 1;
    let is_root = word("Uid:") == Some("0");
    let needed = [
        (is_host, "hostPID: true is missing: only this container's own processes are seen"),
        (has(SYS_PTRACE), "the capability SYS_PTRACE is missing: no process of another user can be read"),
        (
            !steers || has(SYS_ADMIN),
            "the capability SYS_ADMIN is missing: processes in other network namespaces cannot be asked for memory",
        ),
        (!steers || is_root, "this is not root: processes of other users answer root alone"),
    ];
    needed.iter().filter(|(is_there, _)| !is_there).map(|(_, why)| (*why).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_seen_by_the_kernels_threads_or_a_first_process_elsewhere() {
        for (files, expected) in [
            (&[("2/comm", "kthreadd\n"), ("1/cgroup", "0::/\n"), ("self/cgroup", "0::/\n")][..], true),
            (&[("2/comm", "sh\n"), ("1/cgroup", "0::/../../../init.scope\n"), ("self/cgroup", "0::/\n")], true),
            (&[("2/comm", "sh\n"), ("1/cgroup", "0::/\n"), ("self/cgroup", "0::/\n")], false),
            // Others' are hidden.
            (&[("self/cgroup", "0::/\n")], false),
        ] {
            let proc = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let file = proc.path().join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            assert_eq!(is_host(proc.path()), expected, "{files:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let all = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";
        assert!(of(all, true, true).is_empty());
        let reads = "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000080000\n";
        assert!(of(reads, true, false).is_empty());
        assert!(of(reads, true, true)[0].contains("SYS_ADMIN"));
        assert_eq!(of("", false, true).len(), 4);
        assert!(of(all, false, true)[0].contains("hostPID"));
    }
}
