//! The file whose blocks the program with a cache serves.

use crate::harness::owner;
use crate::harness::restore::{RestoreGuard, on_end};
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that is removed when this is dropped.
pub struct BlockFile(PathBuf, #[allow(dead_code, reason = "held for its drop")] RestoreGuard);

/// Makes it: each block begins with its number.
pub fn make(directory: &Path, block: u64, blocks: u64) -> Result<BlockFile, String> {
    let path = directory.join(owner::name(".blocks"));
    let undo = path.clone();
    let guard = on_end(move || drop(std::fs::remove_file(undo)));
    let write = || {
        let mut file = BufWriter::new(OpenOptions::new().write(true).create_new(true).open(&path)?);
        let mut content = vec![0x5a; block as usize];
        for number in 0..blocks {
            content[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all(&content)?;
        }
        file.into_inner()?.sync_all()
    };
    write().map_err(|why| format!("cannot write {}: {why}", path.display()))?;
    Ok(BlockFile(path, guard))
}

impl BlockFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}
