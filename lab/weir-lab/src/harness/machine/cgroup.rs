//! A memory cgroup of one's own, version 1 or 2, removed when it goes.

use crate::harness::machine::owner;
use crate::harness::machine::restore::{RestoreGuard, kill, on_end};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_lab::common::group::Group;

/// Where groups are, whatever their version.
pub const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

/// A group, and its version.
pub struct Cgroup {
    pub group: Group,
    version: u8,
    _guard: RestoreGuard,
}

/// Where memory groups are made, and their version.
pub fn root() -> Result<(PathBuf, u8)> {
    let [unified, memory] = ROOTS.map(Path::new);
    let controllers = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|controller| controller == "memory") {
        return Ok((unified.to_path_buf(), 2));
    }
    if memory.join("memory.limit_in_bytes").exists() {
        return Ok((memory.to_path_buf(), 1));
    }
    bail!("no memory cgroups are mounted")
}

impl Cgroup {
    /// A group with a limit.
    pub fn make(name: &str, bytes: u64) -> Result<Cgroup> {
        let (root, version) = root()?;
        if version == 2 {
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let name = owner::name(&format!("-{name}"));
        let undo = root.join(&name);
        let guard = on_end(move || {
            if !remove(&undo) {
                eprintln!("weir-lab: a cgroup stays behind: rmdir {}", undo.display());
            }
        });
        let cgroup = Cgroup { group: Group::make(&root, &name)?, version, _guard: guard };
        cgroup.limit(bytes)?;
        Ok(cgroup)
    }

    fn by_version<'a>(&self, one: &'a str, two: &'a str) -> &'a str {
        if self.version == 2 { two } else { one }
    }

    pub fn limit(&self, bytes: u64) -> Result<()> {
        self.group.write(self.by_version("memory.limit_in_bytes", "memory.max"), bytes)
    }

    /// Presses its members for a moment, to a tenth less than they have, and kills none.
    pub fn squeeze(&self, limit: u64) -> Result<()> {
        let less = self.usage()? / 10 * 9;
        if self.version == 2 {
            self.group.write("memory.high", less)?;
            return self.group.write("memory.high", "max");
        }
        let _ = self.group.write("memory.oom_control", 1);
        let _ = self.limit(less);
        self.limit(limit)
    }

    pub fn limit_swap(&self, limit: u64, bytes: u64) -> Result<()> {
        match self.version {
            2 => self.group.write("memory.swap.max", bytes),
            _ => self.group.write("memory.memsw.limit_in_bytes", limit + bytes),
        }
    }

    pub fn usage(&self) -> Result<u64> {
        self.group.number(self.by_version("memory.usage_in_bytes", "memory.current"))
    }

    /// Bytes of its members that are swapped out.
    pub fn swapped(&self) -> Result<u64> {
        match self.version {
            2 => self.group.number("memory.swap.current"),
            _ => Ok(self.group.field("memory.stat", "total_swap")),
        }
    }

    pub fn take_in(&self, pid: u32) -> Result<()> {
        self.group.write("cgroup.procs", pid).context("a group takes no member")
    }
}

/// Removes a group and kills who is in it.
pub fn remove(path: &Path) -> bool {
    for _ in 0..100 {
        let inside = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        inside.lines().filter_map(|line| line.parse().ok()).for_each(kill);
        if fs::remove_dir(path).is_ok() || !path.exists() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
