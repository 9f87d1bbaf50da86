//! The files of a memory cgroup, version 1 or 2: what is charged to it, its limit, its processes.

use crate::base::failure::{Failure, Kind};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The names of a version's files.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat`, of the group and those below it: file pages that were not used lately, and all file pages.
    inactive_file: &'static str,
    file: &'static str,
}

/// Version 2 first.
const VERSIONS: [Names; 2] = [
    Names { limit: "memory.max", used: "memory.current", inactive_file: "inactive_file", file: "file" },
    Names {
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        inactive_file: "total_inactive_file",
        file: "total_cache",
    },
];
/// Lines of version 2's with memory that the kernel may drop for a limit: pages of files, and what it keeps of their names.
const MAY_BE_DROPPED: [&str; 3] = ["inactive_file", "active_file", "slab_reclaimable"];
/// A file that the root of a hierarchy of version 1 has alone. That of version 2 has no limit's file.
pub(super) const V1_ROOT: &str = "cgroup.sane_behavior";
/// Version 1 says "none" by a number that no machine reaches.
pub(super) const NO_LIMIT: u64 = 1 << 60;

/// See the module.
pub struct Group {
    directory: PathBuf,
    names: &'static Names,
}

impl Group {
    /// The group of a directory.
    pub fn of(directory: &Path) -> Result<Self, Failure> {
        let names = VERSIONS.iter().find(|names| directory.join(names.limit).exists());
        let Some(names) = names else {
            let [v2, v1] = VERSIONS.each_ref().map(|names| names.limit);
            let why = format!("{} is no memory cgroup with a limit: it has neither {v2} nor {v1}", directory.display());
            return Err(Failure::of(Kind::NotFound, why));
        };
        Ok(Self { directory: directory.to_owned(), names })
    }

    /// Whether this process may change the limit: asked before anybody gives anything.
    pub(crate) fn may_be_limited(&self) -> Result<(), Failure> {
        if self.directory.join(V1_ROOT).exists() {
            let why = format!("{} is all of the machine: it can have no limit", self.directory.display());
            return Err(Failure::of(Kind::Refused, why));
        }
        let limit = self.directory.join(self.names.limit);
        let opened = fs::OpenOptions::new().write(true).open(&limit);
        opened.map(drop).map_err(|why| Failure::of(Kind::Refused, format!("cannot set {}: {why}", limit.display())))
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn is_v2(&self) -> bool {
        std::ptr::eq(self.names, &VERSIONS[0])
    }

    /// The number in a file of its directory.
    pub(super) fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.directory.join(file)).ok()?.trim().parse().ok()
    }

    /// The limit, bytes; none: there is none.
    pub fn limit(&self) -> Option<u64> {
        self.number(self.names.limit).filter(|&limit| limit < NO_LIMIT)
    }

    /// Memory that is charged to the group, bytes.
    pub fn charged(&self) -> Result<u64, Failure> {
        let file = self.directory.join(self.names.used);
        self.number(self.names.used)
            .ok_or_else(|| Failure::of(Kind::NotFound, format!("cannot read {}", file.display())))
    }

    /// A figure of `memory.stat`; 0: this kernel does not tell it.
    fn stat(&self, name: &str) -> u64 {
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let figure = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        stat.lines().find_map(figure).unwrap_or(0)
    }

    /// File pages among it that were not used lately: the kernel drops those by itself.
    pub fn droppable(&self) -> u64 {
        self.stat(self.names.inactive_file)
    }

    /// All file pages among it, those of files in memory as well.
    pub(crate) fn files(&self) -> u64 {
        self.stat(self.names.file)
    }

    /// Memory of the group that is swapped out, bytes: charged once it is used again.
    pub fn swapped(&self) -> u64 {
        let with_memory = |bytes: u64| bytes.saturating_sub(self.charged().unwrap_or(bytes));
        let v1 = || self.number("memory.memsw.usage_in_bytes").map(with_memory);
        self.number("memory.swap.current").or_else(v1).unwrap_or(0)
    }

    /// Memory that counts against a limit. Version 1 refuses a limit that it cannot reach by dropping file pages; version 2
    /// kills, so that there all that is charged counts.
    pub(crate) fn counted(&self) -> Result<u64, Failure> {
        let charged = self.charged()?;
        Ok(if self.is_v2() { charged } else { self.counts(charged, self.droppable()) })
    }

    /// What of these figures counts against a limit.
    pub(crate) fn counts(&self, charged: u64, droppable: u64) -> u64 {
        if self.is_v2() { charged } else { charged.saturating_sub(droppable) }
    }

    /// Has the kernel drop file pages that were not used lately, where it can be told to.
    pub(crate) fn drop_files(&self, bytes: u64) {
        self.reclaim(bytes.min(self.droppable()));
    }

    /// As [`Self::drop_files`], with what was used lately as well. `false`: there is not so much, or it cannot be told to.
    pub(crate) fn drop_more(&self, bytes: u64) -> bool {
        let may_go = MAY_BE_DROPPED.iter().fold(0, |sum: u64, name| sum.saturating_add(self.stat(name)));
        bytes <= may_go && self.reclaim(bytes)
    }

    /// Has the kernel take memory of the group (version 2, Linux 5.19). Nothing is swapped out for it: where there is swap, the
    /// kernel has to know the word (6.9). `false`: it cannot be told to.
    fn reclaim(&self, bytes: u64) -> bool {
        let file = self.directory.join("memory.reclaim");
        let can_be_told = self.is_v2() && bytes > 0 && file.exists();
        if can_be_told {
            // It may find less.
            let _ = fs::write(file, format!("{bytes}{}", if has_swap() { " swappiness=0" } else { "" }));
        }
        can_be_told
    }

    /// Sets the limit. `false`: the kernel does not get below it (version 1).
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<bool, Failure> {
        let file = self.directory.join(self.names.limit);
        match fs::write(&file, bytes.to_string()) {
            Ok(()) => Ok(true),
            Err(why) if why.kind() == io::ErrorKind::ResourceBusy => Ok(false),
            Err(why) => Err(Failure::of(Kind::Refused, format!("cannot set {}: {why}", file.display()))),
        }
    }

    /// The processes of the group and of those below it, by number.
    pub fn processes(&self) -> Vec<i32> {
        let (mut found, mut waiting) = (BTreeSet::new(), vec![self.directory.clone()]);
        while let Some(directory) = waiting.pop() {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            // 0: one of another PID namespace.
            found.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()).filter(|&pid| pid > 0));
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            waiting.extend(entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()));
        }
        found.into_iter().collect()
    }
}

/// Whether the machine swaps: the list has a line beside its head.
fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|list| list.lines().nth(1).is_some())
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
        let v2 = tree(&[
            ("memory.max", "max\n"),
            ("memory.current", "1000\n"),
            ("memory.swap.current", "50\n"),
            ("memory.stat", "file 390\ninactive_file 300\nactive_file 40\nslab_reclaimable 20\n"),
            ("cgroup.procs", "7\n0\n"),
            ("below/cgroup.procs", "9\n7\n"),
            ("memory.reclaim", ""),
        ]);
        let group = Group::of(v2.path()).unwrap();
        assert_eq!((group.limit(), group.counted().unwrap(), group.droppable()), (None, 1000, 300));
        assert_eq!(group.swapped(), 50);
        assert_eq!(group.processes(), [7, 9]);
        group.drop_files(1 << 20);
        let asked = || fs::read_to_string(v2.path().join("memory.reclaim")).unwrap();
        let is_asked = |bytes: &str| asked().split(' ').next() == Some(bytes);
        assert!(is_asked("300"), "no more than what was not used lately: {}", asked());
        assert!(!group.drop_more(361) && is_asked("300"), "there is not so much: {}", asked());
        assert!(group.drop_more(360) && is_asked("360"), "{}", asked());
        assert_eq!(group.files(), 390);
        assert!(group.set_limit(2000).unwrap());
        assert_eq!(group.limit(), Some(2000));
        let v1 = tree(&[
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "1000\n"),
            ("memory.stat", "cache 9\ninactive_file 7\ntotal_cache 310\ntotal_inactive_file 300\n"),
        ]);
        let group = Group::of(v1.path()).unwrap();
        assert_eq!((group.files(), group.drop_more(1)), (310, false));
        assert_eq!((group.limit(), group.charged().unwrap(), group.counted().unwrap()), (None, 1000, 700));
        assert_eq!(group.swapped(), 0, "swap is not accounted");
        fs::write(v1.path().join("memory.memsw.usage_in_bytes"), "1200\n").unwrap();
        assert_eq!(group.swapped(), 200);
    }

    #[test]
    fn all_of_the_machine_is_asked_for_nothing() {
        let root = [("memory.limit_in_bytes", "9223372036854771712\n"), (V1_ROOT, "0\n")];
        let may_be = |files| Group::of(tree(files).path()).unwrap().may_be_limited().map_err(|why| why.status);
        assert_eq!((may_be(&root[..1]), may_be(&root)), (Ok(()), Err(Kind::Refused as i32)));
    }

    #[test]
    fn what_is_no_group_is_named() {
        let empty = tree(&[]);
        let why = Group::of(empty.path()).err().unwrap();
        assert_eq!(why.status, Kind::NotFound as i32);
        assert!(why.to_string().ends_with("it has neither memory.max nor memory.limit_in_bytes"), "{why}");
    }
}
