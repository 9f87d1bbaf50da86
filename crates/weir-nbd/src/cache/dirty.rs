//! Blocks that clients have written and the file has not yet got. They are held apart from the evictable cache: what
//! was acknowledged is never evicted, only written below, and then becomes a block like others.

use super::shared::BLOCK;
use crate::buffers::Buffer;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most blocks of one write below: 1 MiB.
const MAX_RUN: usize = (1 << 20) / BLOCK;

/// A dirty block. The version tells whether it was written again while it was being written below. The number is how many were
/// added before it.
struct Dirty {
    data: Buffer,
    version: u64,
    number: u64,
}

/// The dirty blocks of one file.
#[derive(Default)]
pub struct DirtyBlocks {
    blocks: Mutex<BTreeMap<u64, Dirty>>,
    /// How many were added, ever. It changes under the lock of the blocks.
    added: AtomicU64,
    writing: tokio::sync::Mutex<()>,
}

/// The right to write dirty blocks of a file below. If two had it at a time, the older content of a block could come
/// last.
pub type Writing<'a> = tokio::sync::MutexGuard<'a, ()>;

/// Dirty blocks that follow each other, copied to be written below.
pub struct Run {
    /// The first.
    pub first: u64,
    /// Their bytes.
    pub data: Buffer,
    /// Their versions.
    pub versions: Vec<u64>,
}

impl DirtyBlocks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Dirty>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to write them below, when no other has it.
    pub async fn writing(&self) -> Writing<'_> {
        self.writing.lock().await
    }

    /// Appends `part` of a block, if it is dirty.
    pub fn copy(&self, block: u64, part: Range<usize>, out: &mut Buffer) -> bool {
        let blocks = self.lock();
        let Some(dirty) = blocks.get(&block) else { return false };
        out.append(&dirty.data.filled()[part]);
        true
    }

    /// Is the block dirty?
    pub fn contains(&self, block: u64) -> bool {
        self.lock().contains_key(&block)
    }

    /// Is any of them dirty?
    pub fn touches(&self, blocks: Range<u64>) -> bool {
        !blocks.is_empty() && self.lock().range(blocks).next().is_some()
    }

    /// Which of them are dirty.
    pub fn numbers(&self, blocks: Range<u64>) -> Vec<u64> {
        if blocks.is_empty() { Vec::new() } else { self.lock().range(blocks).map(|(block, _)| *block).collect() }
    }

    /// Drops a block; false if it is not dirty.
    pub fn remove(&self, block: u64) -> bool {
        self.lock().remove(&block).is_some()
    }

    /// Writes `bytes` at `at` in a dirty block; false if it is not dirty.
    pub fn patch(&self, block: u64, at: usize, bytes: &[u8]) -> bool {
        let mut blocks = self.lock();
        let Some(dirty) = blocks.get_mut(&block) else { return false };
        dirty.data.filled_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        dirty.version += 1;
        true
    }

    /// Adds a block that is not dirty yet.
    pub fn add(&self, block: u64, data: Buffer) {
        let mut blocks = self.lock();
        let number = self.added.fetch_add(1, Relaxed);
        let before = blocks.insert(block, Dirty { data, version: 0, number });
        debug_assert!(before.is_none(), "a dirty block is patched");
    }

    /// How many blocks were added by now: each that is dirty now has a lower number.
    pub fn added(&self) -> u64 {
        let _blocks = self.lock();
        self.added.load(Relaxed)
    }

    /// The next dirty blocks in a row from `from` on, of those with numbers below `newest`.
    pub fn next_run(&self, from: u64, newest: u64) -> io::Result<Option<Run>> {
        let blocks = self.lock();
        let mut following = blocks.range(from..).filter(|(_, dirty)| dirty.number < newest);
        let Some((&first, _)) = following.next() else { return Ok(None) };
        let length = 1 + following.zip(first + 1..).take(MAX_RUN - 1).take_while(|((at, _), next)| *at == next).count();
        let mut run = Run { first, data: Buffer::take(length * BLOCK)?, versions: Vec::with_capacity(length) };
        for dirty in blocks.range(first..first + length as u64).map(|(_, dirty)| dirty) {
            run.data.append(dirty.data.filled());
            run.versions.push(dirty.version);
        }
        Ok(Some(run))
    }

    /// Takes a block out, unless it was written again since it had this version.
    pub fn take(&self, block: u64, version: u64) -> Option<Buffer> {
        let mut blocks = self.lock();
        let is_same = blocks.get(&block).is_some_and(|dirty| dirty.version == version);
        is_same.then(|| blocks.remove(&block)).flatten().map(|dirty| dirty.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(value: u8) -> Buffer {
        Buffer::copy_of(&[value; BLOCK]).expect("memory")
    }

    #[test]
    fn runs_are_of_blocks_in_a_row() {
        let dirty = DirtyBlocks::default();
        for number in [3, 4, 5, 9] {
            dirty.add(number, block(number as u8));
        }
        let run = dirty.next_run(0, 100).expect("memory").expect("a run");
        assert_eq!((run.first, run.versions.len(), run.data.filled()[2 * BLOCK]), (3, 3, 5));
        let run = dirty.next_run(6, 100).expect("memory").expect("a run");
        assert_eq!((run.first, run.versions.len()), (9, 1));
        assert!(dirty.next_run(10, 100).expect("memory").is_none());
        // Block 5 was the third, and 9 the fourth.
        let run = dirty.next_run(0, 2).expect("memory").expect("a run");
        assert_eq!((run.first, run.versions.len()), (3, 2));
        assert!(dirty.next_run(5, 2).expect("memory").is_none() && dirty.next_run(6, 3).expect("memory").is_none());
        assert_eq!(dirty.added(), 4);
        assert!(dirty.touches(5..7) && !dirty.touches(6..9) && !dirty.touches(4..4));
    }

    #[test]
    fn what_was_written_again_stays_dirty() {
        let dirty = DirtyBlocks::default();
        dirty.add(3, block(1));
        let run = dirty.next_run(0, 100).expect("memory").expect("a run");
        assert!(dirty.patch(3, 10, b"again") && !dirty.patch(4, 0, b"x"));
        assert!(dirty.take(3, run.versions[0]).is_none() && dirty.contains(3));
        let run = dirty.next_run(0, 100).expect("memory").expect("a run");
        assert_eq!(&run.data.filled()[9..16], b"\x01again\x01");
        assert!(dirty.take(3, run.versions[0]).is_some() && !dirty.contains(3));
    }
}
