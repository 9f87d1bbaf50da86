//! The memory cgroups of this machine, version 1 or 2: the processes in each, and what is charged to it.
//!
//! Groups are found in the file system and not by `/proc/PID/cgroup`: in a cgroup namespace, which a container has, paths
//! there are relative to the reader's own group.

use super::place::{self, Place};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use weir_cli::Stall;

/// Groups lie no deeper than this.
const DEEPEST: usize = 16;

/// See the module.
pub struct Groups {
    /// The directory of the hierarchy that accounts memory.
    root: PathBuf,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its path below the root of the hierarchy.
    pub path: PathBuf,
    /// The container that it is of.
    pub place: Option<Place>,
    /// Its processes, with those of groups that a container's program made below.
    pub pids: Vec<i32>,
}

/// The memory that is charged to a group, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Charge {
    /// All of it.
    pub charged: u64,
    /// File pages among it that were not used lately: the kernel drops those by itself.
    pub droppable: u64,
    /// Memory of the group that is swapped out, and not among it.
    pub swapped: u64,
    /// The limit; none: there is none.
    pub limit: Option<u64>,
    /// What the group's limit lets it use, and its pod's does not, for what is charged to the pod beside it.
    pub beside: u64,
    /// Share of the last ten seconds in which some task of the group waited for memory; none on version 1.
    pub stall: Option<f64>,
}

impl Groups {
    /// Those below a directory at which cgroups are mounted, such as `/sys/fs/cgroup`.
    pub fn at(mount: &Path) -> Result<Self> {
        let v1 = mount.join("memory");
        if mount.join("cgroup.controllers").exists() {
            Ok(Self { root: mount.to_owned() })
        } else if v1.join("memory.usage_in_bytes").exists() {
            Ok(Self { root: v1 })
        } else {
            anyhow::bail!(
                "{} has no cgroups with memory: say by --cgroup-root where the host's are mounted",
                mount.display()
            )
        }
    }

    /// The directory of a group.
    pub fn directory(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    /// All groups that have processes.
    pub fn all(&self) -> Vec<Group> {
        let mut found = BTreeMap::new();
        self.walk(PathBuf::new(), 0, &mut found);
        found.into_values().collect()
    }

    fn walk(&self, path: PathBuf, depth: usize, found: &mut BTreeMap<PathBuf, Group>) {
        let directory = self.root.join(&path);
        let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        // 0: one of another PID namespace.
        let pids: Vec<i32> = text.lines().filter_map(|line| line.trim().parse().ok()).filter(|&pid| pid > 0).collect();
        if !pids.is_empty() {
            let of = place::of(&path);
            let whole = of.as_ref().map_or(path.clone(), |(_, parts)| path.iter().take(*parts).collect());
            let group = Group { path: whole.clone(), place: of.map(|(place, _)| place), pids: Vec::new() };
            found.entry(whole).or_insert(group).pids.extend(pids);
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for entry in below.take_while(|_| depth < DEEPEST) {
            self.walk(path.join(entry.file_name()), depth + 1, found);
        }
    }

    /// What is charged to a group; none: it is gone, or the root.
    pub fn charge(&self, path: &Path) -> Option<Charge> {
        let directory = self.directory(path);
        let group = weir_cli::shrink::Group::of(&directory).ok()?;
        Some(Charge {
            charged: group.charged().ok()?,
            droppable: group.droppable(),
            swapped: group.swapped(),
            limit: group.limit(),
            beside: beside(&directory),
            stall: Stall::read(&directory.join("memory.pressure")).map(share),
        })
    }
}

/// What the limit of a container's group lets it use, and its pod's does not: more is charged to the pod beside it than the pod's
/// limit has beside its own. That may be a volume in memory, which a container has filled that has ended by now.
pub fn beside(directory: &Path) -> u64 {
    more_beside(directory).unwrap_or(0)
}

fn more_beside(directory: &Path) -> Option<u64> {
    place::of(directory).filter(|(_, parts)| *parts == directory.iter().count())?;
    let [own, pod] = [directory, directory.parent()?].map(|it| weir_cli::shrink::Group::of(it).ok());
    let (own, pod) = (own?, pod?);
    let room = pod.limit()?.saturating_sub(own.limit()?);
    let more = pod.charged().ok()?.saturating_sub(own.charged().ok()?).saturating_sub(room);
    // File pages are read last: that costs the kernel most.
    let dropped = |more: u64| more.saturating_sub(pod.droppable().saturating_sub(own.droppable()));
    Some(if more == 0 { 0 } else { dropped(more) })
}

/// The share of the last ten seconds in which some task waited.
pub fn share(stall: Stall) -> f64 {
    stall.some[0] / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = directory.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        directory
    }

    #[test]
    fn both_versions_are_read() {
        let id = "0123456789abcdef".repeat(4);
        let container = format!("kubepods/burstable/podabc/{id}");
        let file = |name: &str| format!("{container}/{name}");
        let v2 = tree(&[
            ("cgroup.controllers", "memory\n"),
            ("cgroup.procs", "1\n0\n"),
            (&file("cgroup.procs"), "7\n"),
            (&file("own/cgroup.procs"), "9\n"),
            (&file("memory.current"), "1000\n"),
            (&file("memory.max"), "max\n"),
            (&file("memory.swap.current"), "70\n"),
            (&file("memory.stat"), "anon 5\ninactive_file 300\n"),
            (
                &file("memory.pressure"),
                "some avg10=12.50 avg60=0.00 avg300=0.00 total=7\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=7\n",
            ),
        ]);
        let groups = Groups::at(v2.path()).unwrap();
        let all = groups.all();
        assert_eq!((all[0].path.as_path(), &all[0].place, &all[0].pids[..]), (Path::new(""), &None, &[1][..]));
        let place = Some(Place { pod: "abc".into(), container: id.clone() });
        assert_eq!((all[1].path.as_path(), &all[1].place), (Path::new(&container), &place));
        assert_eq!((&all[1].pids[..], all.len()), (&[7, 9][..], 2));
        let charge = Charge { charged: 1000, droppable: 300, swapped: 70, stall: Some(0.125), ..Charge::default() };
        assert_eq!(groups.charge(Path::new(&container)), Some(charge));
        assert_eq!(groups.charge(Path::new("gone")), None);

        let v1 = tree(&[
            ("memory/memory.usage_in_bytes", "5\n"),
            ("memory/a/cgroup.procs", "7\n"),
            ("memory/a/memory.usage_in_bytes", "1000\n"),
            ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 300\n"),
        ]);
        let groups = Groups::at(v1.path()).unwrap();
        assert_eq!(groups.all().len(), 1);
        let charge = Charge { charged: 1000, droppable: 300, ..Charge::default() };
        assert_eq!(groups.charge(Path::new("a")), Some(charge));
        assert_eq!(groups.directory(Path::new("a")), v1.path().join("memory/a"));
    }

    /// A container has filled a volume in memory and has ended: its pages are the pod's.
    #[test]
    fn what_is_charged_to_the_pod_beside_its_containers_is_known() {
        let container = format!("kubepods/burstable/podabc/{}", "0123456789abcdef".repeat(4));
        let file = |name: &str| format!("{container}/{name}");
        for (limit, charged, expected) in [
            ("1000", "700", 400),
            ("1000", "320", 20),  // file pages
            ("1300", "700", 100), // the other container's part is not used by that
            ("2000", "700", 0),
            ("max", "700", 0),
        ] {
            let v2 = tree(&[
                ("cgroup.controllers", "memory\n"),
                ("kubepods/burstable/podabc/memory.max", limit),
                ("kubepods/burstable/podabc/memory.current", charged),
                ("kubepods/burstable/podabc/memory.stat", "inactive_file 50\n"),
                (&file("memory.max"), "1000"),
                (&file("memory.current"), "270"),
                (&file("memory.stat"), "inactive_file 20\n"),
            ]);
            let groups = Groups::at(v2.path()).unwrap();
            assert_eq!(groups.charge(Path::new(&container)).unwrap().beside, expected, "{limit} {charged}");
            assert_eq!(groups.charge(Path::new("kubepods/burstable/podabc")).unwrap().beside, 0);
        }
    }

    #[test]
    fn where_there_are_none_it_is_said() {
        let why = Groups::at(tree(&[]).path()).err().unwrap().to_string();
        assert!(why.contains("--cgroup-root"), "{why}");
    }
}
