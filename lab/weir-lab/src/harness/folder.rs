//! A folder of an experiment's own, removed when it goes.

use crate::harness::owner;
use crate::harness::restore::{RestoreGuard, on_end};
use std::fs;
use std::path::{Path, PathBuf};

/// The folder and what is in it.
pub struct Folder {
    path: PathBuf,
    _guard: RestoreGuard,
}

impl Folder {
    /// Makes one, empty, in the folder `at`.
    pub fn make(at: &Path, name: &str) -> Result<Folder, String> {
        let path = at.join(owner::name(&format!("-{name}")));
        let undo = path.clone();
        let guard = on_end(move || drop(fs::remove_dir_all(undo)));
        fs::create_dir(&path).map_err(|why| format!("cannot make {}: {why}", path.display()))?;
        Ok(Folder { path, _guard: guard })
    }

    /// Makes one on a file system in memory where there is one, or else with the other temporary files.
    pub fn in_memory(name: &str) -> Result<Folder, String> {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { Folder::make(shm, name) } else { Folder::make(&std::env::temp_dir(), name) }
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Itself.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
