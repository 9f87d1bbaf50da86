//! The blocks themselves.

use super::BLOCK;
use crate::base::Failure;
use crate::buffers::Buffer;
use std::ops::Range;

/// A file's number and a block's.
pub type Key = (u32, u64);

/// Blocks by their keys. Each is [`BLOCK`] bytes.
pub struct Store {
    blocks: std::sync::Mutex<std::collections::HashMap<Key, Buffer>>,
    max: Option<u64>,
}

impl Store {
    /// A store of at most `max` bytes, or of as many as memory allows.
    pub fn new(max: Option<u64>) -> Result<Self, Failure> {
        Ok(Self { blocks: Default::default(), max })
    }

    /// Appends `part` of a block to `out`, if the block is here.
    pub fn copy(&self, key: Key, part: Range<usize>, out: &mut Buffer) -> bool {
        let blocks = self.blocks.lock().unwrap();
        let Some(block) = blocks.get(&key) else { return false };
        out.append(&block.filled()[part]);
        true
    }

    /// Is the block here?
    pub fn contains(&self, key: Key) -> bool {
        self.blocks.lock().unwrap().contains_key(&key)
    }

    /// Puts a block in, unless there is no room for it.
    pub fn insert(&self, key: Key, block: Buffer) {
        let mut blocks = self.blocks.lock().unwrap();
        if self.max.is_none_or(|max| (blocks.len() * BLOCK) < max as usize) {
            blocks.insert(key, block);
        }
    }

    /// Removes a block.
    pub fn remove(&self, key: Key) {
        self.blocks.lock().unwrap().remove(&key);
    }

    /// Blocks and bytes that are here.
    pub fn size(&self) -> (usize, usize) {
        let blocks = self.blocks.lock().unwrap().len();
        (blocks, blocks * BLOCK)
    }
}
