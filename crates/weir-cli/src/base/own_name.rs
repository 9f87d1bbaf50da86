//! Names in the file system that this process has made.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of a file or socket of this process, removed when this is dropped. What another has put in its place stays.
pub struct OwnName {
    /// The name.
    pub path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl OwnName {
    /// The name of what is open: as long as that is, no other file has its inode.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }

    /// Leaves the file where it is.
    pub fn keep(mut self) {
        self.identity = None;
    }
}

impl Drop for OwnName {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // It may have been removed by hand.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of what has this name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = path.symlink_metadata().ok()?;
    Some((found.dev(), found.ino()))
}
