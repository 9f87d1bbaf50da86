//! The parts that a guest has in place of a userland: file systems of the kernel's own, variables from a file,
//! memory groups.

use anyhow::{Context, Result};
use std::ffi::CString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use weir_lab::common::group::Group;

const GROUPS: &str = "/sys/fs/cgroup";

/// The variables of `/environment`.
pub fn environment() -> Vec<(String, String)> {
    let text = std::fs::read_to_string("/environment").unwrap_or_default();
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// Mounts a file system of the kernel's own.
pub fn mount(kind: &str, place: &str) -> Result<()> {
    let (kind, at) = (CString::new(kind)?, CString::new(place)?);
    // SAFETY: the words end with zero bytes, and the kernel only reads them.
    let failed = unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context(format!("cannot mount {place}")) }
}

/// Mounts cgroup v2, and lets groups limit memory.
pub fn mount_groups() -> Result<()> {
    mount("cgroup2", GROUPS)?;
    Group(GROUPS.into()).write("cgroup.subtree_control", "+memory")
}

/// Makes a group below the root.
pub fn group(name: &str) -> Result<Group> {
    Group::make(Path::new(GROUPS), name)
}

/// A program that is killed when it goes.
pub struct Started(pub Child);

impl Started {
    /// Starts it in a group.
    pub fn new(group: &Group, command: &mut Command) -> Result<Started> {
        group.enter(command);
        let child = command.spawn();
        child.map(Started).with_context(|| format!("cannot start {}", Path::new(command.get_program()).display()))
    }

    /// Writes to its input, which is a pipe.
    pub fn tell(&mut self, what: &[u8]) -> Result<()> {
        self.0.stdin.as_mut().context("no input")?.write_all(what).context("the program is gone")
    }

    /// Waits for a line of its output, which is a pipe.
    pub fn hear(&mut self) -> Result<Vec<u8>> {
        let (pipe, mut line, mut byte) = (self.0.stdout.as_mut().context("no output")?, Vec::new(), [0]);
        while line.last() != Some(&b'\n') {
            pipe.read_exact(&mut byte).context("the program ended before its time")?;
            line.push(byte[0]);
        }
        Ok(line)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
