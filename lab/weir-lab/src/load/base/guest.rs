//! The parts that a guest has in place of a userland: file systems of the kernel's own, variables from a file,
//! memory groups.

use anyhow::{Context, Result};
use std::ffi::CString;
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

/// Starts a program in a group.
pub fn start(group: &Group, command: &mut Command) -> Result<Child> {
    group.enter(command);
    command.spawn().with_context(|| format!("cannot start {}", Path::new(command.get_program()).display()))
}
