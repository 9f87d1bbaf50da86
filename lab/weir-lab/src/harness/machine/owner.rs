//! Which run of weir-lab made a file, a folder or a cgroup, or started a process. Its number is in their names, and in
//! the processes' environment. So a later run can tell what a killed one left ([`crate::harness::machine::leftovers`]).

use crate::harness::machine::restore::{RestoreGuard, on_end};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PREFIX: &str = "weir-lab-";
const VARIABLE: &str = "STARTED_BY_WEIR_LAB";

/// A name of this run's.
pub fn name(rest: &str) -> String {
    format!("{PREFIX}{}{rest}", std::process::id())
}

/// The run that a path is of.
pub fn of_path(path: &str) -> Option<u32> {
    path.split('/').find_map(|name| name.strip_prefix(PREFIX)?.split_once(['-', '.'])?.0.parse().ok())
}

/// Marks what a command starts.
pub fn mark(command: &mut Command) {
    command.env(VARIABLE, std::process::id().to_string());
}

/// The run that started the process of this environment.
pub fn of_environment(environment: &[u8]) -> Option<u32> {
    let mut variables = environment.split(|&byte| byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    variables.find_map(|text| text.strip_prefix(VARIABLE)?.strip_prefix('=')?.parse().ok())
}

/// A file of this run's, which is removed when it goes.
pub struct OwnFile {
    pub path: PathBuf,
    _guard: RestoreGuard,
}

/// Names a file, for somebody to make.
pub fn file(at: &Path, rest: &str) -> OwnFile {
    let path = at.join(name(rest));
    let undo = path.clone();
    OwnFile { path, _guard: on_end(move || drop(fs::remove_file(undo))) }
}

/// A folder of this run's, removed when it goes.
pub struct Folder {
    path: PathBuf,
    _guard: RestoreGuard,
}

impl Folder {
    pub fn make(at: &Path, name: &str) -> Result<Folder> {
        let path = at.join(self::name(&format!("-{name}")));
        let undo = path.clone();
        let guard = on_end(move || drop(fs::remove_dir_all(undo)));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Folder { path, _guard: guard })
    }

    /// In memory, where the machine has a file system for that.
    pub fn in_memory(name: &str) -> Result<Folder> {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { Folder::make(shm, name) } else { Folder::make(&std::env::temp_dir(), name) }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a folder in it.
    pub fn below(&self, name: &str) -> Result<PathBuf> {
        let path = self.at(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_environments_tell_whose_they_are() {
        let own = std::process::id();
        assert_eq!((of_path(&name(".swap")), of_path(&name("-e1"))), (Some(own), Some(own)));
        for other in ["weir-lab.lock", "weir-lab-load", "weir-lab-cache-weir", "weir-lab-12", "a-weir-lab-12.swap"] {
            assert_eq!(of_path(other), None, "{other}");
        }
        assert_eq!((of_path("/a/weir-lab-12-e1/fuse"), of_path("/a/weir-lab-load/b")), (Some(12), None));
        assert_eq!(of_environment(b"A=1\0STARTED_BY_WEIR_LAB=12\0B=2\0"), Some(12));
        assert_eq!(of_environment(b"A=STARTED_BY_WEIR_LAB=12\0STARTED_BY_WEIR_LAB=x\0"), None);
    }
}
