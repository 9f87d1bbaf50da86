//! The cgroup of a process: where its files are, and what memory the kernel charges to it.

use super::group::{Group, NO_LIMIT, V1_ROOT};
use crate::base::json;
use procfs::process::Process;
use serde::Serialize;
use std::path::{Component, Path, PathBuf};

/// A cgroup's memory, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Charged {
    /// The cgroup's directory.
    #[serde(serialize_with = "json::path")]
    pub directory: PathBuf,
    /// All that is charged.
    pub bytes: u64,
    /// Page cache in it, but not what lies in memory only (tmpfs, shared memory).
    pub page_cache_bytes: u64,
    /// Memory of the kernel's: page tables, stacks of threads, slabs.
    pub kernel_bytes: u64,
    /// The limit, its own or a lower one above it; none: there is none.
    pub limit_bytes: Option<u64>,
}

/// What version 2 tells one by one of the kernel's memory, before the sum that Linux 5.18 and later tell.
const OF_KERNEL: [&str; 4] = ["kernel_stack", "pagetables", "percpu", "slab"];

/// Memory that is charged to the cgroup of a process. None in the root group, which has no figures of its own, and where the
/// files cannot be read.
pub fn charged(process: &Process) -> Option<Charged> {
    charged_to(directory(process, "memory", true)?)
}

/// As [`charged`], of the cgroup with this directory.
pub fn charged_to(directory: PathBuf) -> Option<Charged> {
    let group = Group::of(&directory).ok()?;
    let stat = std::fs::read_to_string(directory.join("memory.stat")).ok()?;
    let of = |name: &str| figure(&stat, name);
    // Version 2, then version 1.
    let cache = of("file").or_else(|| of("cache")).unwrap_or(0);
    let kernel = of("kernel").or_else(|| group.number("memory.kmem.usage_in_bytes"));
    let kernel = kernel.unwrap_or_else(|| OF_KERNEL.into_iter().filter_map(of).fold(0, u64::saturating_add));
    // Version 1 tells of limits that are out of sight too.
    let told = of("hierarchical_memory_limit").filter(|&limit| limit < NO_LIMIT);
    let above = directory.ancestors().map_while(|group| Group::of(group).ok()).filter_map(|group| group.limit());
    Some(Charged {
        bytes: group.charged().ok()?,
        page_cache_bytes: cache.saturating_sub(of("shmem").unwrap_or(0)),
        kernel_bytes: kernel,
        limit_bytes: above.chain(told).min(),
        directory,
    })
}

/// The file with the pressure of the process's cgroup; none in the root group, where it is the machine's.
pub fn pressure_file(process: &Process) -> Option<PathBuf> {
    let file = directory(process, "", false)?.join("memory.pressure");
    file.exists().then_some(file)
}

/// The directory of the process's cgroup in the hierarchy of version 2. Where asked for, it is that in a controller's
/// hierarchy of version 1 if there is one. The root group has none.
pub(super) fn directory(process: &Process, controller: &str, or_v1: bool) -> Option<PathBuf> {
    let groups = process.cgroups().ok()?.0;
    // Both as they are seen from here: what the process itself has mounted is its own choice.
    let mounts = Process::myself().ok()?.mountinfo().ok()?.0;
    let v1 = groups.iter().find(|group| or_v1 && group.controllers.iter().any(|it| it == controller));
    let (group, kind) = match v1 {
        Some(group) => (group, "cgroup"),
        None => (groups.iter().find(|group| group.hierarchy == 0)?, "cgroup2"),
    };
    let is_there = |mount: &&procfs::process::MountInfo| {
        mount.fs_type == kind && (kind == "cgroup2" || mount.super_options.contains_key(controller))
    };
    // A hierarchy may be mounted more than once, also with what the cgroup namespace does not show.
    let (mount, inside) =
        mounts.iter().filter(is_there).find_map(|mount| Some((mount, below(&mount.root, &group.pathname)?)))?;
    let directory: PathBuf = mount.mount_point.iter().chain(inside.iter()).collect();
    // The directory of the mount is a group of its own in a container, and the root group elsewhere.
    let is_root = inside.as_os_str().is_empty() && mount.root == "/" && is_hierarchy_root(&directory, kind);
    (!is_root && directory.is_dir()).then_some(directory)
}

/// Whether it is the root of a whole hierarchy, and not of what a cgroup namespace shows of one. That of version 2 alone lacks
/// `cgroup.type`.
fn is_hierarchy_root(directory: &Path, kind: &str) -> bool {
    match kind {
        "cgroup2" => !directory.join("cgroup.type").exists(),
        _ => directory.join(V1_ROOT).exists(),
    }
}

/// The path of a group relative to what is mounted; none if it lies elsewhere, as that of another namespace does.
fn below(root: &str, group: &str) -> Option<PathBuf> {
    let inside = Path::new(group).strip_prefix(root).ok()?;
    inside.components().all(|part| matches!(part, Component::Normal(_))).then(|| inside.to_path_buf())
}

fn figure(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_name() {
        let stat = "file_mapped 1\nfile 77\ninactive_file 5\n";
        assert_eq!((figure(stat, "file"), figure(stat, "fil"), figure(stat, "shmem")), (Some(77), None, None));
    }

    /// What is charged to the group a/b of a tree with these files.
    fn charged_of(files: &[(&str, &str)]) -> Charged {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("a/b");
        std::fs::create_dir_all(&group).unwrap();
        files.iter().for_each(|(file, text)| std::fs::write(top.path().join(file), text).unwrap());
        Charged { directory: PathBuf::new(), ..charged_to(group).unwrap() }
    }

    #[test]
    fn the_kernels_part_is_known_before_it_has_a_line_of_its_own() {
        let own = [("a/b/memory.max", "max\n"), ("a/b/memory.current", "900\n")];
        let of = |stat| charged_of(&[own[0], own[1], ("a/b/memory.stat", stat)]);
        let kernel = "kernel_stack 40\npagetables 8\npercpu 2\nslab 50\nslab_reclaimable 30\n";
        let old = format!("anon 5\nfile 300\n{kernel}sock 7\nshmem 100\n");
        let wanted = Charged { bytes: 900, page_cache_bytes: 200, kernel_bytes: 100, ..Charged::default() };
        assert_eq!(of(&old), wanted);
        assert_eq!(of(&format!("{old}kernel 120\n")).kernel_bytes, 120);
    }

    #[test]
    fn a_limit_above_holds_for_a_group() {
        let own = [("a/b/memory.max", "3000\n"), ("a/b/memory.current", "900\n"), ("a/b/memory.stat", "")];
        let limit = |above| charged_of(&[&own[..], &[("a/memory.max", above)]].concat()).limit_bytes;
        assert_eq!((limit("2000\n"), limit("max\n"), limit("4000\n")), (Some(2000), Some(3000), Some(3000)));
        let none = "9223372036854771712\n";
        let v1 = |stat| {
            let (limit, used) = (("a/b/memory.limit_in_bytes", none), ("a/b/memory.usage_in_bytes", "900\n"));
            charged_of(&[limit, used, ("a/b/memory.stat", stat)]).limit_bytes
        };
        assert_eq!(v1("hierarchical_memory_limit 5000\n"), Some(5000));
        assert_eq!(v1(&format!("hierarchical_memory_limit {none}")), None);
    }

    #[test]
    fn what_a_namespace_shows_as_the_root_is_a_group() {
        let top = tempfile::tempdir().unwrap();
        let is_root = |kind| is_hierarchy_root(top.path(), kind);
        assert_eq!((is_root("cgroup2"), is_root("cgroup")), (true, false));
        std::fs::write(top.path().join("cgroup.type"), "domain\n").unwrap();
        std::fs::write(top.path().join(V1_ROOT), "0\n").unwrap();
        assert_eq!((is_root("cgroup2"), is_root("cgroup")), (false, true));
    }

    #[test]
    fn a_group_is_found_below_what_is_mounted() {
        assert_eq!(below("/", "/a/b"), Some("a/b".into()));
        assert_eq!(below("/docker/1", "/docker/1/x"), Some("x".into()));
        assert_eq!((below("/docker/1", "/docker/1"), below("/docker/1", "/docker/12")), (Some("".into()), None));
        assert_eq!(below("/", "/../other"), None);
    }
}
