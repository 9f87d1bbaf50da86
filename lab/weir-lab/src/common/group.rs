//! A memory control group, by its files.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A group's folder.
pub struct Group(pub PathBuf);

impl Group {
    /// Makes a group below another.
    pub fn make(above: &Path, name: &str) -> Result<Group> {
        let path = above.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {} (needs root)", path.display()))?;
        Ok(Group(path))
    }

    /// Writes one of its files.
    pub fn write(&self, file: &str, text: impl ToString) -> Result<()> {
        let path = self.0.join(file);
        fs::write(&path, text.to_string()).with_context(|| format!("{}: '{}'", path.display(), text.to_string()))
    }

    /// The number that a file holds.
    pub fn number(&self, file: &str) -> Result<u64> {
        let path = self.0.join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.trim().parse().with_context(|| format!("{} is no number: {}", path.display(), text.trim()))
    }

    /// A number of a file of names and numbers, such as `memory.events`; 0 where it has no such name.
    pub fn field(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        line.unwrap_or(0)
    }

    /// Has the command start as a member of the group.
    pub fn enter(&self, command: &mut Command) {
        let procs = self.0.join("cgroup.procs");
        // SAFETY: the closure opens a file, writes and closes it, and allocates nothing for a path this short.
        unsafe { command.pre_exec(move || fs::write(&procs, "0")) };
    }
}
