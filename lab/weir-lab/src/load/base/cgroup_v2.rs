//! Control groups of version 2 in a guest, where this program is the first process and owns the whole hierarchy.

use crate::base::userland::mount;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const ROOT: &str = "/sys/fs/cgroup";

/// A group with the memory controller.
pub struct Group(PathBuf);

/// What `memory.events` of a group counts.
#[derive(Clone, Copy, Default)]
pub struct EventCounts {
    /// Times a member was throttled at `memory.high`.
    pub high: u64,
    /// Times use was about to exceed `memory.max`.
    pub max: u64,
    /// Processes that the kernel killed for want of memory.
    pub oom_kill: u64,
}

/// Mounts the hierarchy and lets groups at its top have the memory controller.
pub fn mount_hierarchy() -> Result<(), String> {
    mount("cgroup2", ROOT).map_err(|why| format!("cannot mount cgroup2: {why}"))?;
    Group(PathBuf::from(ROOT)).allow_memory()
}

impl Group {
    /// Makes a group at the top of the hierarchy.
    pub fn make(name: &str) -> Result<Group, String> {
        Group(PathBuf::from(ROOT)).make_child(name)
    }

    /// Makes a group below this one.
    pub fn make_child(&self, name: &str) -> Result<Group, String> {
        let path = self.0.join(name);
        fs::create_dir(&path).map_err(|why| format!("cannot make {}: {why}", path.display()))?;
        Ok(Group(path))
    }

    /// Lets groups below this one have the memory controller.
    pub fn allow_memory(&self) -> Result<(), String> {
        self.write("cgroup.subtree_control", "+memory")
    }

    /// Removes the group, which has no process left.
    pub fn remove(self) -> Result<(), String> {
        fs::remove_dir(&self.0).map_err(|why| format!("cannot remove {}: {why}", self.0.display()))
    }

    /// Writes one of the group's files.
    pub fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.0.join(file);
        fs::write(&path, text).map_err(|why| format!("cannot write '{text}' to {}: {why}", path.display()))
    }

    /// A file that holds one number.
    pub fn number(&self, file: &str) -> Result<u64, String> {
        let path = self.0.join(file);
        let text = fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        text.trim().parse().map_err(|_| format!("{} is no number: {}", path.display(), text.trim()))
    }

    /// What the group's events came to.
    pub fn events(&self) -> EventCounts {
        let text = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|count| count.parse().ok()).unwrap_or(0)
        };
        EventCounts { high: of("high"), max: of("max"), oom_kill: of("oom_kill") }
    }

    /// Starts a program inside.
    pub fn start(&self, command: &mut Command) -> Result<Child, String> {
        let procs = self.0.join("cgroup.procs");
        // SAFETY: between fork and exec a file is written to, which needs no lock of this single-threaded process.
        unsafe { command.pre_exec(move || fs::write(&procs, "0")) };
        let name = Path::new(command.get_program()).display().to_string();
        command.spawn().map_err(|why| format!("cannot start {name}: {why}"))
    }
}
