//! One file's part of the cache: reads and writes of its blocks, each in one step under the stripe's lock.

use super::dirty::{DirtyBlocks, Run};
use super::shared::{BLOCK, Shared, blocks_of};
use super::write_turns::WriteTurns;
use crate::buffers::Buffer;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A file in the cache.
pub struct CachedFile {
    cache: Arc<Shared>,
    number: u32,
    /// Bytes of the file, as far as they are known to those that have it open.
    size: Arc<AtomicU64>,
    /// Blocks to be written below; none where writes are not answered before they are there.
    dirty: Option<DirtyBlocks>,
    dirty_bytes: AtomicU64,
    /// Blocks of it that were put into the store.
    inserted: AtomicU64,
    turns: Arc<WriteTurns>,
}

/// Most bytes of a write, trim or zeroing that marks its blocks at a time: a quarter of all stripes. A longer one would
/// stop writes to parts of blocks in all files.
pub const MOST_GUARDED: u64 = 16 << 20;

/// A block's offset in the file.
fn offset_of(block: u64) -> u64 {
    block * BLOCK as u64
}

/// The part of a block that a range covers, in the block's own bytes.
fn part_of(block: u64, range: &Range<u64>) -> Range<usize> {
    let at = offset_of(block);
    (range.start.max(at) - at) as usize..(range.end.min(at + BLOCK as u64) - at) as usize
}

impl CachedFile {
    pub(super) fn new(cache: Arc<Shared>, number: u32, writes_back: bool) -> Self {
        let dirty = writes_back.then(DirtyBlocks::default);
        let [dirty_bytes, inserted] = [const { AtomicU64::new(0) }; 2];
        Self { cache, number, size: Arc::default(), dirty, dirty_bytes, inserted, turns: Arc::default() }
    }

    /// The file's size, bytes: one number, so that all agree on what its last whole block is.
    pub fn size(&self) -> &Arc<AtomicU64> {
        &self.size
    }

    /// The turns of direct writes and others: the same for all that have it open.
    pub fn turns(&self) -> &Arc<WriteTurns> {
        &self.turns
    }

    /// Before `more` bytes become dirty: whether they have to wait for some to be written below.
    pub fn is_too_dirty(&self, more: u64) -> bool {
        self.cache.is_too_dirty(&self.dirty_bytes, more)
    }

    /// Bytes of blocks that the cache may hold at most.
    pub fn room(&self) -> u64 {
        self.cache.room()
    }

    /// The blocks to be written below, if writes are answered before.
    pub fn dirty(&self) -> Option<&DirtyBlocks> {
        self.dirty.as_ref()
    }

    fn key(&self, block: u64) -> (u32, u64) {
        (self.number, block)
    }

    fn stripe(&self, block: u64) -> usize {
        self.cache.stripes.of(self.number, block)
    }

    /// Puts a block in, unless it is dirty. The caller has the lock of the block's stripe (`stripes.rs` says why).
    fn put(&self, block: u64, data: Buffer) {
        if !self.dirty.as_ref().is_some_and(|dirty| dirty.contains(block)) {
            self.cache.store.insert(self.key(block), data);
            self.inserted.fetch_add(1, Release);
        }
    }

    // ---- reads

    /// Appends the bytes of `range`, which lies in one block, if they are here.
    pub fn copy(&self, range: &Range<u64>, out: &mut Buffer) -> bool {
        let block = blocks_of(range).start;
        let part = part_of(block, range);
        let is_dirty = self.dirty.as_ref().is_some_and(|dirty| dirty.copy(block, part.clone(), out));
        let is_hit = is_dirty || self.cache.store.copy(self.key(block), part, out);
        if is_hit {
            self.cache.hits.fetch_add(1, Relaxed);
        }
        is_hit
    }

    /// Is the block here?
    pub fn contains(&self, block: u64) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| dirty.contains(block)) || self.cache.store.contains(self.key(block))
    }

    /// Before `blocks` are fetched.
    pub fn begin_fetch(&self, blocks: Range<u64>) -> Fetch<'_> {
        self.cache.misses.fetch_add(blocks.end - blocks.start, Relaxed);
        let generations = blocks.clone().map(|block| self.cache.stripes.begin_read(self.stripe(block))).collect();
        Fetch { file: self, blocks, generations }
    }

    // ---- writes that reach the file before they are answered

    /// Removes the blocks of a range that has more of them than the cache has, by a walk over the cache: one look for each
    /// block of the range would take longer.
    ///
    /// It is before the marks on the blocks, so that blocks may be put in again. What is put in is counted after that,
    /// under the lock of its stripe, and the count is noted before the walk. So a block that the walk has not found
    /// changes the count, and the mark on that block, under the same lock, sees that. If the count were noted after the
    /// walk, a block put in behind the walk, and before the note, would stay.
    pub fn empty(&self, range: &Range<u64>) -> Option<Emptied> {
        let blocks = blocks_of(range);
        if blocks.end - blocks.start <= self.cache.store.len() as u64 {
            return None;
        }
        let emptied = Emptied(self.inserted.load(Acquire));
        self.cache.store.remove_where(|(file, block)| *file == self.number && blocks.contains(block));
        Some(emptied)
    }

    /// Before `range`, of [`MOST_GUARDED`] bytes at most, is written, trimmed or zeroed: its blocks are not here any more.
    /// With `keep`, for a write, the old content is kept of blocks that it covers in part and that are here. So they can
    /// be put back.
    pub fn begin_write(self: &Arc<Self>, range: Range<u64>, keep: bool) -> WriteGuard {
        self.begin_emptied(range, keep, None)
    }

    /// The same of a range, or a part of it, that was `emptied`.
    pub fn begin_emptied(self: &Arc<Self>, range: Range<u64>, keep: bool, emptied: Option<Emptied>) -> WriteGuard {
        debug_assert!(range.end - range.start <= MOST_GUARDED, "a longer one is in pieces");
        let blocks = blocks_of(&range);
        let begin = |block: u64| {
            let kept = || {
                let is_part = part_of(block, &range).len() < BLOCK;
                let mut old = (keep && is_part).then(|| Buffer::keep(BLOCK).ok()).flatten();
                old.take_if(|old| !self.cache.store.copy(self.key(block), 0..BLOCK, old));
                if emptied != Some(Emptied(self.inserted.load(Acquire))) {
                    self.cache.store.remove(self.key(block));
                }
                old
            };
            let (generation, old) = self.cache.stripes.begin_write(self.stripe(block), kept);
            Begun { generation, old }
        };
        let begun = blocks.clone().map(begin).collect();
        WriteGuard { file: self.clone(), range, first: blocks.start, begun }
    }

    // ---- writes that reach the file later

    /// Writes `bytes` into a block at `at`. Where the bytes are not all of the block and the rest is not here, this needs
    /// `base`: the whole block as it was fetched. Returns false if there is none, or a newer one is in the file.
    ///
    /// False too for a part of a block while a trim or zeroing of the block is under way. That writes the dirty block to
    /// the file and then changes the file. A dirty block with this part and the old rest would be written to the file
    /// after that, and the change would be undone.
    pub fn write_dirty(
        &self,
        block: u64,
        at: usize,
        bytes: &[u8],
        base: Option<(Fetch<'_>, Buffer)>,
    ) -> io::Result<bool> {
        let dirty = self.dirty.as_ref().expect("only where blocks may be dirty");
        let stripe = self.stripe(block);
        let is_fresh = |fetch: &Fetch, now: Option<u32>| now.is_some() && fetch.generations[0] == now;
        let written = self.cache.stripes.step(stripe, |generation| {
            if bytes.len() < BLOCK && generation.is_none() {
                return None;
            }
            if dirty.patch(block, at, bytes) {
                return Some(Ok(()));
            }
            let mut data = match Buffer::keep(BLOCK) {
                Ok(room) => room,
                Err(why) => return Some(Err(why)),
            };
            if bytes.len() == BLOCK {
                data.append(bytes);
            } else {
                if !self.cache.store.copy(self.key(block), 0..BLOCK, &mut data) {
                    let (_, base) = base.filter(|(fetch, _)| is_fresh(fetch, generation))?;
                    _ = data.append(base.filled());
                }
                data.filled_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            }
            dirty.add(block, data);
            self.cache.dirtied(&self.dirty_bytes);
            self.cache.store.remove(self.key(block));
            Some(Ok(()))
        });
        written.transpose().map(|done| done.is_some())
    }

    /// A range has become zeroes below. What waits to be written there is dropped. Of a block that the range covers in
    /// part, that part becomes zeroes. The caller has the turn to write below, and the range is guarded.
    pub fn zero_dirty(&self, range: &Range<u64>) {
        let Some(dirty) = &self.dirty else { return };
        for block in dirty.numbers(blocks_of(range)) {
            let part = part_of(block, range);
            self.cache.stripes.change(self.stripe(block), |_| {
                if part.len() < BLOCK {
                    dirty.patch(block, part.start, &[0; BLOCK][..part.len()]);
                } else if dirty.remove(block) {
                    self.cache.cleaned(&self.dirty_bytes);
                }
            });
        }
    }

    /// Before a run is written below: what [`CachedFile::clean`] needs.
    pub fn before_writing_back(&self, run: &Run) -> Fetch<'_> {
        let blocks = run.first..run.first + run.versions.len() as u64;
        let generations = blocks.clone().map(|block| self.cache.stripes.begin_read(self.stripe(block))).collect();
        Fetch { file: self, blocks, generations }
    }

    /// A run has reached the file: its blocks are as others now, but for those that were written again.
    pub fn clean(&self, run: &Run, noted: &Fetch<'_>) {
        let dirty = self.dirty.as_ref().expect("only where blocks may be dirty");
        for ((block, version), noted) in noted.blocks.clone().zip(&run.versions).zip(&noted.generations) {
            let cache = &self.cache;
            // The file has changed: a fetch that began before may have the block as it was.
            cache.stripes.change(self.stripe(block), |generation| {
                if let Some(data) = dirty.take(block, *version) {
                    cache.cleaned(&self.dirty_bytes);
                    // Trimmed or zeroed meanwhile: which of the two the file has is not known.
                    let is_known = generation.is_some() && generation == *noted;
                    if is_known { self.put(block, data) } else { cache.store.remove(self.key(block)) }
                }
            });
            cache.written_back.fetch_add(1, Relaxed);
        }
    }
}

/// Blocks on their way from the file.
pub struct Fetch<'a> {
    file: &'a CachedFile,
    blocks: Range<u64>,
    generations: Vec<Option<u32>>,
}

impl Fetch<'_> {
    /// Notes that the blocks are here: `data` begins with the first.
    pub fn insert(&self, data: &[u8]) {
        for ((block, generation), bytes) in self.blocks.clone().zip(&self.generations).zip(data.chunks_exact(BLOCK)) {
            let file = self.file;
            file.cache.stripes.end_read(file.stripe(block), *generation, || {
                // Without memory for it there is no copy here.
                if let Ok(copy) = Buffer::kept_copy(bytes) {
                    file.put(block, copy);
                }
            });
        }
    }
}

/// The count of a file's blocks before a range of it was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emptied(u64);

/// A write's mark on one block.
struct Begun {
    generation: u32,
    old: Option<Buffer>,
}

/// Memory of the guards of a trim or zeroing of `length` bytes at most, bytes: there is one at a time.
pub fn write_guard_bytes(length: u64) -> usize {
    // A range that is not aligned touches a block more.
    let blocks = length.min(MOST_GUARDED).div_ceil(BLOCK as u64) + 1;
    blocks as usize * size_of::<Begun>()
}

/// A write, trim or zeroing under way. While it is, nothing of its blocks is put in.
pub struct WriteGuard {
    file: Arc<CachedFile>,
    range: Range<u64>,
    first: u64,
    begun: Vec<Begun>,
}

impl WriteGuard {
    /// Ends the write, which is done and has written `data`, of which whole blocks are put in.
    pub fn finish(mut self, data: &[u8]) {
        for (block, begun) in (self.first..).zip(std::mem::take(&mut self.begun)) {
            let part = part_of(block, &self.range);
            let at = (offset_of(block) + part.start as u64 - self.range.start) as usize;
            let bytes = &data[at..at + part.len()];
            let stripe = self.file.stripe(block);
            self.file.cache.stripes.end_write(stripe, begun.generation, || {
                let new = match begun.old {
                    Some(mut old) => {
                        old.filled_mut()[part].copy_from_slice(bytes);
                        Some(old)
                    }
                    None => (bytes.len() == BLOCK).then(|| Buffer::kept_copy(bytes).ok()).flatten(),
                };
                if let Some(new) = new {
                    self.file.put(block, new);
                }
            });
        }
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        for (block, begun) in (self.first..).zip(&self.begun) {
            self.file.cache.stripes.end_write(self.file.stripe(block), begun.generation, || {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stripes::STRIPES;
    use super::*;

    fn file() -> CachedFile {
        CachedFile::new(Arc::new(Shared::new(Some(4 << 20)).expect("a cache")), 1, true)
    }

    #[test]
    fn two_writes_to_parts_of_a_block_do_not_outdate_each_other_for_ever() {
        let file = file();
        let base = || Buffer::copy_of(&[0; BLOCK]).expect("memory");
        assert!(!file.write_dirty(3, 0, b"first", None).expect("memory"));
        let first = file.begin_fetch(3..4);
        assert!(!file.write_dirty(3, 512, b"second", None).expect("memory"));
        let second = file.begin_fetch(3..4);
        assert!(file.write_dirty(3, 0, b"first", Some((first, base()))).expect("memory"));
        assert!(file.write_dirty(3, 512, b"second", Some((second, base()))).expect("memory"));
        let mut block = Buffer::take(BLOCK).expect("memory");
        assert!(file.copy(&(offset_of(3)..offset_of(4)), &mut block));
        assert!(block.filled().starts_with(b"first") && block.filled()[512..].starts_with(b"second"));
    }

    #[test]
    fn a_part_of_a_block_is_not_written_during_a_zeroing_and_all_of_it_is() {
        let file = Arc::new(file());
        let base = || Buffer::copy_of(&[0; BLOCK]).expect("memory");
        // A dirty block, and one that is not.
        assert!(file.write_dirty(3, 0, &[7; BLOCK], None).expect("memory"));
        let zeroing = file.begin_write(offset_of(3)..offset_of(5), false);
        for block in [3, 4] {
            assert!(!file.write_dirty(block, 512, b"part", None).expect("memory"));
            let fetch = file.begin_fetch(block..block + 1);
            assert!(!file.write_dirty(block, 512, b"part", Some((fetch, base()))).expect("memory"));
        }
        assert!(file.write_dirty(3, 0, &[8; BLOCK], None).expect("memory"), "nothing old is left of it");
        drop(zeroing);
        assert!(file.write_dirty(3, 512, b"part", None).expect("memory"));
    }

    #[test]
    fn a_guard_takes_no_more_memory_than_is_counted() {
        let file = Arc::new(file());
        for length in [1, 2, 4096, 4097, 1 << 20, MOST_GUARDED - 1, MOST_GUARDED, MOST_GUARDED + 1, 1 << 40] {
            for offset in [0, 1, 4095] {
                let guard = file.begin_write(offset..offset + length.min(MOST_GUARDED), false);
                let (held, counted) = (guard.begun.capacity() * size_of::<Begun>(), write_guard_bytes(length));
                assert!(held <= counted && counted <= held + 2 * size_of::<Begun>(), "{held} of {counted} bytes");
            }
        }
    }

    #[test]
    fn what_is_fetched_while_the_block_is_dirty_is_not_put_in() {
        let file = file();
        assert!(file.write_dirty(3, 0, &[7; BLOCK], None).expect("memory"));
        // By a read that found no dirty block a moment before.
        file.begin_fetch(3..4).insert(&[0; BLOCK]);
        assert!(!file.cache.store.contains(file.key(3)), "it is older than the dirty block");
        let run = file.dirty().expect("dirty blocks").next_run(0, 9).expect("memory").expect("a run");
        file.clean(&run, &file.before_writing_back(&run));
        let mut block = Buffer::take(BLOCK).expect("memory");
        assert!(file.copy(&(offset_of(3)..offset_of(4)), &mut block) && block.filled() == [7; BLOCK]);
    }

    #[test]
    fn a_block_that_is_written_often_does_not_outdate_others_of_its_stripe() {
        let (file, other) = (file(), 3 + STRIPES as u64);
        assert_eq!(file.stripe(3), file.stripe(other));
        let fetch = file.begin_fetch(3..4);
        for value in 0..9 {
            assert!(file.write_dirty(other, 0, &[value; BLOCK], None).expect("memory"));
        }
        let base = Buffer::copy_of(&[0; BLOCK]).expect("memory");
        assert!(file.write_dirty(3, 512, b"part", Some((fetch, base))).expect("memory"));
    }

    #[test]
    fn a_range_that_was_emptied_is_empty_when_it_is_marked() {
        let file = Arc::new(file());
        let fetch = |block| file.begin_fetch(block..block + 1).insert(&[7; BLOCK]);
        (0..4).for_each(fetch);
        assert!(file.empty(&(0..offset_of(4))).is_none(), "it has no more blocks than the cache");
        let emptied = file.empty(&(offset_of(1)..offset_of(9)));
        assert!(emptied.is_some() && file.contains(0) && !(1..9).any(|block| file.contains(block)));
        // Between the two.
        fetch(5);
        let _guard = file.begin_emptied(offset_of(4)..offset_of(9), false, emptied);
        assert!(!file.contains(5));
    }

    #[test]
    fn what_was_fetched_before_the_block_was_written_is_no_base() {
        let file = file();
        let old = file.begin_fetch(3..4);
        assert!(file.write_dirty(3, 0, &[7; BLOCK], None).expect("memory"));
        let run = file.dirty().expect("dirty blocks").next_run(0, 9).expect("memory").expect("a run");
        file.clean(&run, &file.before_writing_back(&run));
        file.cache.store.remove(file.key(3));
        let base = Buffer::copy_of(&[0; BLOCK]).expect("memory");
        assert!(!file.write_dirty(3, 0, b"part", Some((old, base))).expect("memory"), "it lacks the write");
    }
}
