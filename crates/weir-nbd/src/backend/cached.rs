//! Reading and writing through the block cache.
//!
//! Only whole blocks inside the volume are cached: what is behind the last one is read and written as without a cache.

use super::volume::Volume;
use crate::buffers::Buffer;
use crate::cache::{BLOCK, CachedFile, Emptied, MOST_GUARDED, WriteGuard, Writing, blocks_of};
use crate::io::{blocking, yield_once};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Most bytes that are read in advance at a time.
pub const READ_AHEAD: u64 = 1 << 20;
/// Most bytes of one fetch: what a worker puts in at a time, before other clients have their turn.
const MAX_FETCH: u64 = 4 << 20;
/// Before a block is fetched again for a write to a part of it, where another write came between.
const PAUSE: Duration = Duration::from_millis(1);
/// Blocks of one write that become dirty between two looks whether too many are: 256 KiB.
const UNLOOKED: u64 = 64;

const SIZE: u64 = BLOCK as u64;

impl Volume {
    /// The end of the last whole block.
    fn cacheable(&self) -> u64 {
        self.size() / SIZE * SIZE
    }

    /// Reads a range: what is here is copied, and what is missing is fetched run by run, and put in.
    pub(super) async fn read_cached(
        &self,
        cached: &Arc<CachedFile>,
        range: Range<u64>,
    ) -> std::result::Result<Buffer, (Error, u64)> {
        let mut out = Buffer::take((range.end - range.start) as usize).map_err(|why| (why, range.start))?;
        let mut at = range.start;
        while at < range.end {
            let of_block = at..((at / SIZE + 1) * SIZE).min(range.end);
            if of_block.end <= self.cacheable() && cached.copy(&of_block, &mut out) {
                at = of_block.end;
                continue;
            }
            let missing = at..self.end_of_run(cached, at, range.end);
            if missing == range {
                // Not two buffers while it is read: the request is charged for one.
                drop(out);
                return self.fetch(cached, missing).await;
            }
            // Whole blocks that have their place in the reply are read to it, others are copied there.
            let whole = at..if range.start.is_multiple_of(SIZE) { missing.end / SIZE * SIZE } else { at };
            if whole.is_empty() {
                let part = at..missing.end.min((at / SIZE + 1) * SIZE + READ_AHEAD);
                out.append(self.fetch(cached, part.clone()).await?.filled());
                at = part.end;
            } else {
                let (fetch, before) = (cached.begin_fetch(blocks_of(&whole)), out.filled().len());
                out = self.medium.append(out, whole.clone()).await?;
                fetch.insert(&out.filled()[before..]);
                at = whole.end;
            }
        }
        Ok(out)
    }

    /// Where a run of missing bytes that begins at `at` ends, at `end` at most.
    fn end_of_run(&self, cached: &CachedFile, at: u64, end: u64) -> u64 {
        if at >= self.cacheable() {
            return end;
        }
        let after = at / SIZE + 1;
        let most = end.min(self.cacheable()).min(at + MAX_FETCH).div_ceil(SIZE);
        let next = (after..most).find(|block| cached.contains(*block)).unwrap_or(most);
        (next * SIZE).min(end)
    }

    /// Fetches the blocks of a range that is missing, and returns the range's bytes.
    async fn fetch(&self, cached: &Arc<CachedFile>, range: Range<u64>) -> std::result::Result<Buffer, (Error, u64)> {
        if range.start >= self.cacheable() {
            return self.medium.read(range).await;
        }
        let blocks = blocks_of(&range);
        let whole = blocks.start * SIZE..blocks.end * SIZE;
        let fetch = cached.begin_fetch(blocks);
        match self.medium.read(whole.clone()).await {
            Ok(mut bytes) => {
                fetch.insert(bytes.filled());
                if whole == range {
                    return Ok(bytes);
                }
                let part = (range.start - whole.start) as usize..(range.end - whole.start) as usize;
                if range.end - range.start <= READ_AHEAD {
                    return Buffer::copy_of(&bytes.filled()[part]).map_err(|why| (why, range.start));
                }
                // Moved inside of its buffer: the request is charged for one.
                bytes.truncate(part.end);
                bytes.keep_from(part.start);
                Ok(bytes)
            }
            // What went wrong may lie outside of what the client has asked for.
            Err(_) => self.medium.read(range).await,
        }
    }

    /// Writes `buffer`: into the file, and then into the cache; or into the cache alone where writes are answered before
    /// they reach the file.
    pub(super) async fn write_cached(&self, cached: &Arc<CachedFile>, offset: u64, buffer: Buffer) -> Result<()> {
        let length = buffer.filled().len();
        if cached.dirty().is_none() {
            return self.write_through(cached, offset, buffer, 0..length).await;
        }
        let inside = (self.cacheable().saturating_sub(offset) as usize).min(length);
        self.write_dirty(cached, offset, &buffer.filled()[..inside]).await?;
        if inside < length {
            self.write_through(cached, offset, buffer, inside..length).await?;
        }
        Ok(())
    }

    /// Writes a part of `buffer` into the file, and then into the cache.
    ///
    /// Where blocks may be dirty, that is what lies behind the last whole block. The volume may have grown since that was
    /// found out: then it lies in a block that may be dirty, and the file would get the block's other bytes later, with the
    /// old ones in the place of these. So that is looked at once more after the mark. From the mark on no part of the block
    /// becomes dirty, and who made it dirty before has known of the growth.
    async fn write_through(
        &self,
        cached: &Arc<CachedFile>,
        offset: u64,
        mut buffer: Buffer,
        part: Range<usize>,
    ) -> Result<()> {
        for range in self.pieces(offset + part.start as u64..offset + part.end as u64) {
            let part = (range.start - offset) as usize..(range.end - offset) as usize;
            let guard = cached.begin_write(range.clone(), true);
            if cached.dirty().is_some() && range.end <= self.cacheable() {
                drop(guard);
                self.write_dirty(cached, range.start, &buffer.filled()[part]).await?;
                continue;
            }
            buffer = self.medium.write(range.start, buffer, part.clone()).await?;
            // Behind the last whole block nothing is cached.
            if range.end <= self.cacheable() {
                guard.finish(&buffer.filled()[part]);
            }
        }
        Ok(())
    }

    /// Writes whole or partial blocks into the cache, to be written below later.
    async fn write_dirty(&self, cached: &Arc<CachedFile>, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.write_dirty_blocks(cached, offset, bytes).await;
        // Also after an error: the blocks before it are dirty, and perhaps no other write or flush comes.
        self.flusher.write_back_later();
        written
    }

    async fn write_dirty_blocks(&self, cached: &Arc<CachedFile>, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (block, at) = ((offset + done as u64) / SIZE, ((offset + done as u64) % SIZE) as usize);
            // Before it adds more: where nothing can be written below, what waits does not grow without end. One write may
            // be longer than all that may wait.
            let more = (UNLOOKED * SIZE).min((bytes.len() - done) as u64);
            if (done == 0 || block.is_multiple_of(UNLOOKED)) && cached.is_too_dirty(more) {
                self.flusher.write_back().await?;
            }
            let part = &bytes[done..(done + BLOCK - at).min(bytes.len())];
            let mut is_done = cached.write_dirty(block, at, part, None)?;
            // The rest of the block comes from the file; again, if it was written there meanwhile. The pause lets that
            // go on: it may be a trim of this worker's, and a read from the page cache waits for nothing.
            while !is_done {
                let fetch = cached.begin_fetch(block..block + 1);
                let base = self.read_base(block).await?;
                is_done = cached.write_dirty(block, at, part, Some((fetch, base)))?;
                if !is_done {
                    sleep(PAUSE).await;
                }
            }
            done += part.len();
        }
        Ok(())
    }

    /// A whole block, for a write to a part of it. What the file has lost, by becoming shorter, is zeroes: the write makes the
    /// file longer again.
    async fn read_base(&self, block: u64) -> Result<Buffer> {
        let (start, mut end) = (block * SIZE, (block + 1) * SIZE);
        loop {
            match self.medium.append(Buffer::take(BLOCK)?, start..end).await {
                Ok(mut base) => {
                    base.fill(0, BLOCK - (end - start) as usize);
                    return Ok(base);
                }
                Err((why, at)) if why.kind() == ErrorKind::UnexpectedEof => end = at,
                Err((why, _)) => return Err(why),
            }
        }
    }

    /// A range in pieces that are written, trimmed or zeroed one after another: with a cache, of [`MOST_GUARDED`] bytes at
    /// most. All but the last have half of that at least: whether the first can be zeroed fast is true of all.
    pub(super) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let step = if self.cached.is_some() { MOST_GUARDED / 2 } else { u64::MAX / 2 };
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = at;
            at = range.end.min((start / step + 2).saturating_mul(step));
            (start < at).then_some(start..at)
        })
    }

    /// Removes the blocks of a long range from the cache, before its pieces are changed.
    pub(super) async fn empty(&self, range: &Range<u64>) -> Option<Emptied> {
        let (cached, range) = (self.cached.clone()?, range.clone());
        if range.end - range.start <= MOST_GUARDED {
            return None;
        }
        // Not by the worker itself: a large cache is a long walk.
        blocking(move || cached.empty(&range)).await
    }

    /// Before a piece of a range is trimmed or zeroed below: nothing of it is in the cache, but for what waits to be
    /// written.
    ///
    /// What is on its way to the file could come there after the change. So where the piece is dirty the change takes
    /// the turn to write below, which may take long. It does so before it marks the blocks, as no part of a marked block
    /// can be written. A block may have become dirty before the marks: that is looked at once more, and the second time
    /// the turn is taken in any case. After the marks, only whole blocks become dirty: nothing of the change is lost.
    pub(super) async fn begin_change(&self, range: Range<u64>, emptied: Option<Emptied>) -> Option<Change<'_>> {
        let cached = self.cached.as_ref()?;
        let mut takes_turn = self.is_dirty(&range);
        loop {
            let writing = match cached.dirty() {
                Some(dirty) if takes_turn => Some(dirty.writing().await),
                _ => None,
            };
            let guard = cached.begin_emptied(range.clone(), false, emptied);
            if writing.is_some() || !self.is_dirty(&range) {
                return Some(Change { cached, range, writing, _guard: guard });
            }
            takes_turn = true;
        }
    }

    /// Writes what is dirty in a range below: the file is then all that matters there.
    pub(super) async fn write_back(&self, range: Range<u64>) -> Result<()> {
        if self.is_dirty(&range) { self.flusher.write_back().await } else { Ok(()) }
    }

    /// Is there anything in a range that the file has not yet got?
    pub fn is_dirty(&self, range: &Range<u64>) -> bool {
        let dirty = self.cached.as_ref().and_then(|cached| cached.dirty());
        dirty.is_some_and(|dirty| dirty.touches(blocks_of(range)))
    }

    /// Reads the blocks of a range into the cache, as far as all of it has room there, and as long as it is wanted.
    pub(super) async fn fill_cache(
        &self,
        cached: &Arc<CachedFile>,
        range: Range<u64>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<()> {
        let blocks = blocks_of(&range);
        let (mut at, end) = (blocks.start * SIZE, blocks.end * SIZE);
        // More would push out what came first.
        let end = end.min(self.cacheable()).min(at.saturating_add(cached.room()));
        while at < end && is_wanted() {
            let part = at..end.min(at + READ_AHEAD);
            // It is a hint: what cannot be read is told to whoever reads it.
            if self.fill_part(cached, part.clone()).await.is_err() {
                break;
            }
            at = part.end;
            // What came first has gone again, or had no room: memory is short, or a limit reached.
            if !cached.contains(blocks.start) {
                break;
            }
            // Where all of it is here already, others have their turn.
            yield_once().await;
        }
        Ok(())
    }

    /// Fetches what of a range is missing.
    async fn fill_part(&self, cached: &Arc<CachedFile>, range: Range<u64>) -> std::result::Result<(), (Error, u64)> {
        let mut at = range.start;
        while at < range.end {
            if cached.contains(at / SIZE) {
                at = (at / SIZE + 1) * SIZE;
                continue;
            }
            let part = at..self.end_of_run(cached, at, range.end);
            at = part.end;
            self.fetch(cached, part).await?;
        }
        Ok(())
    }
}

/// A trim or zeroing of a range below, under way. If it fails, what waits to be written there still does.
pub(super) struct Change<'a> {
    cached: &'a CachedFile,
    range: Range<u64>,
    /// Nothing is written below meanwhile. None where nothing was dirty.
    writing: Option<Writing<'a>>,
    _guard: WriteGuard,
}

impl Change<'_> {
    /// The range is zeroes below: what was to be written there before is out of date.
    pub fn finish(self) {
        if self.writing.is_some() {
            self.cached.zero_dirty(&self.range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::medium::Medium;
    use super::super::open::Source;
    use super::super::testing::run;
    use super::*;
    use crate::base::size::Size;
    use crate::buffers::{ConnectionPool, Pools};
    use crate::cache::{BlockCache, FileId};
    use crate::io::Inline;
    use futures_util::FutureExt;

    #[test]
    fn a_write_to_a_part_of_a_block_waits_for_a_trim_of_the_same_worker() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let source = Source::Path { path: folder.path().join("disk"), create: Some(Size(1 << 20)) };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let mut volume = source.open(false, Some(&cache)).expect("a volume");
            // Reads that wait for nothing, as those from a file in memory: between them the worker does nothing else.
            let file = volume.medium.file.clone();
            volume.medium = Arc::new(Medium { file, direct: None, inline: Inline::Always, _lock: None });
            let cached = volume.cached.clone().expect("it is cached");
            let trim = cached.begin_write(0..SIZE, false);
            let ends = async {
                sleep(Duration::from_millis(20)).await;
                drop(trim);
            };
            let data = Buffer::copy_of(b"part").expect("memory");
            let writes = volume.write_cached(&cached, 100, data);
            let (written, ()) = futures_util::future::join(writes, ends).await;
            written.expect("the file can be read");
            assert!(volume.is_dirty(&(0..SIZE)));
            volume.write_back(0..SIZE).await.expect("the file can be written");
            assert_eq!(&std::fs::read(folder.path().join("disk")).expect("a file")[99..105], b"\0part\0");
        });
    }

    #[test]
    fn what_a_failed_write_has_left_in_the_cache_is_written_by_itself() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("disk");
            let source = Source::Path { path: path.clone(), create: Some(Size(1 << 20)) };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let mut volume = source.open(false, Some(&cache)).expect("a volume");
            // A file that cannot be read: a write to a part of a block fails.
            let file = std::fs::File::options().write(true).open(&path).expect("the file");
            let file = Arc::new(file.into());
            volume.medium = Arc::new(Medium { file, direct: None, inline: Inline::Always, _lock: None });
            let cached = volume.cached.clone().expect("it is cached");
            let data = Buffer::copy_of(&[9; BLOCK + 100]).expect("memory");
            volume.write_cached(&cached, 0, data).await.expect_err("the rest of a block is missing");
            assert!(volume.is_dirty(&(0..SIZE)));
            let written = async {
                while volume.is_dirty(&(0..SIZE)) {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(300), written).await.expect("the whole block is written below");
            assert_eq!(std::fs::read(&path).expect("the file")[..BLOCK], [9; BLOCK]);
        });
    }

    #[test]
    fn a_write_behind_the_last_whole_block_that_the_volume_outgrows_is_not_lost() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("disk");
            let source = Source::Path { path: path.clone(), create: Some(Size(SIZE + 1000)) };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let volume = source.open(false, Some(&cache)).expect("a volume");
            let cached = volume.cached.clone().expect("it is cached");
            let data = |bytes: &[u8]| Buffer::copy_of(bytes).expect("memory");
            // It begins in the last whole block, and waits there for a trim. (What the file has there is not known.)
            let trim = cached.begin_write(0..SIZE, false);
            let mut late = Box::pin(volume.write_cached(&cached, SIZE - 3, data(b"before and behind")));
            assert!((&mut late).now_or_never().is_none());
            // Now the volume grows, and a client that knows of it writes to another part of the block.
            std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(2 * SIZE)).expect("longer");
            assert_eq!(volume.grow().expect("the file"), Some(2 * SIZE));
            volume.write_cached(&cached, SIZE + 2000, data(b"other")).await.expect("it is in the cache");
            drop(trim);
            late.await.expect("it is in the cache");
            volume.write_back(0..2 * SIZE).await.expect("the file can be written");
            let found = std::fs::read(&path).expect("a file");
            assert_eq!(&found[BLOCK - 3..BLOCK + 14], b"before and behind");
            assert_eq!(&found[BLOCK + 2000..BLOCK + 2005], b"other");
        });
    }

    #[test]
    fn a_long_range_is_changed_in_pieces() {
        let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
        let source = Source::Memory(Size(1 << 20));
        let mut volume = source.open(false, None).expect("memory");
        assert_eq!(volume.pieces(5..1 << 50).next(), Some(5..1 << 50), "without a cache by one call");
        volume.cached = Some(cache.file(FileId { device: 1, inode: None }));
        for range in [0..0, 7..8, 0..MOST_GUARDED, 5..3 * MOST_GUARDED - 5, MOST_GUARDED - 1..4 * MOST_GUARDED] {
            let (mut at, mut longest, mut shortest) = (range.start, 0, MOST_GUARDED);
            for piece in volume.pieces(range.clone()) {
                assert_eq!(piece.start, at);
                at = piece.end;
                longest = longest.max(piece.end - piece.start);
                if at < range.end {
                    shortest = shortest.min(piece.end - piece.start);
                }
            }
            assert!(at == range.end && longest <= MOST_GUARDED && shortest >= MOST_GUARDED / 2, "{range:?}");
        }
    }

    #[test]
    fn a_hint_to_read_in_advance_has_an_end() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let source = Source::Path { path: folder.path().join("disk"), create: Some(Size(64 << 20)) };
            let cache = BlockCache::new(Some(8 << 20), false).expect("a cache");
            let volume = source.open(false, Some(&cache)).expect("a volume");
            let looks = std::cell::Cell::new(0);
            let is_wanted = || {
                looks.set(looks.get() + 1);
                looks.get() <= 2
            };
            volume.read_ahead(0..64 << 20, is_wanted).await.expect("it is a hint");
            assert_eq!(cache.figures().misses, 2 * READ_AHEAD / SIZE, "as long as it is wanted");
            volume.read_ahead(0..64 << 20, || true).await.expect("it is a hint");
            let most = (8 << 20) / SIZE + 2 * READ_AHEAD / SIZE;
            assert!(cache.figures().misses <= most, "no more than has room");
        });
    }

    #[test]
    fn a_read_that_is_not_aligned_lies_in_one_buffer() {
        let pools = Pools::new();
        let connection = ConnectionPool::new(&pools, "test");
        run(connection.run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("disk");
            let data: Vec<u8> = (0..3_u32 << 18).flat_map(u32::to_le_bytes).collect();
            std::fs::write(&path, &data).expect("a file");
            let source = Source::Path { path, create: None };
            let cache = BlockCache::new(Some(8 << 20), false).expect("a cache");
            let volume = source.open(false, Some(&cache)).expect("a volume");
            let got = |before: u64| pools.figures().gets - before;
            let before = got(0);
            let range = 512..(2 << 20) + 100;
            let read = volume.read(range.clone()).await.map_err(|(why, _)| why).expect("the file can be read");
            assert!(read.filled() == &data[range.start as usize..range.end as usize]);
            assert_eq!(got(before), 2, "one for what is here, given back before one for what is missing");
            // What no client reads is not copied either.
            let before = got(0);
            volume.read_ahead((2 << 20) + 4096 + 512..(2 << 20) + 8192 + 512, || true).await.expect("it is a hint");
            assert_eq!((got(before), cache.figures().misses), (1, 513 + 2));
        }));
    }

    #[test]
    fn a_trim_that_waits_for_its_turn_stops_no_write() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let source = Source::Path { path: folder.path().join("disk"), create: Some(Size(1 << 20)) };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let volume = source.open(false, Some(&cache)).expect("a volume");
            let cached = volume.cached.clone().expect("it is cached");
            let write = async |offset, bytes: &[u8]| {
                let data = Buffer::copy_of(bytes).expect("memory");
                volume.write_cached(&cached, offset, data).await.expect("the file can be read");
            };
            write(0, &[1; BLOCK]).await;
            // As if dirty blocks were on their way to the file, and that took long.
            let writing = cached.dirty().expect("it writes back").writing().await;
            let trim = async {
                let change = volume.begin_change(0..1 << 20, None).await.expect("it is cached");
                assert!(volume.is_dirty(&(0..SIZE)) && volume.is_dirty(&(8 * SIZE..9 * SIZE)));
                change.finish();
            };
            let meanwhile = async {
                write(8 * SIZE + 512, b"part").await;
                drop(writing);
            };
            let both = futures_util::future::join(trim, meanwhile);
            tokio::time::timeout(Duration::from_secs(300), both).await.expect("they do not wait for each other");
            assert!(!volume.is_dirty(&(0..1 << 20)));
        });
    }

    #[test]
    fn a_write_beside_zeroes_in_one_dirty_block_does_not_undo_them() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let source = Source::Path { path: folder.path().join("disk"), create: Some(Size(1 << 20)) };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let mut volume = source.open(false, Some(&cache)).expect("a volume");
            let cached = volume.cached.clone().expect("it is cached");
            let file = volume.medium.file.clone();
            volume.medium = Arc::new(Medium { file: file.clone(), direct: None, inline: Inline::Always, _lock: None });
            let old = Buffer::copy_of(&[1; BLOCK]).expect("memory");
            volume.write_cached(&cached, 0, old).await.expect("the file can be read");
            // The steps of `write_zeroes` for the first 512 bytes, up to where the block is on its way to the file.
            let zeroing = cached.begin_write(0..512, false);
            let dirty = cached.dirty().expect("it writes back");
            let writing = dirty.writing().await;
            let run = dirty.next_run(0, u64::MAX).expect("memory").expect("the block is dirty");
            let noted = cached.before_writing_back(&run);
            let zeroes = async {
                // The write of the next 512 bytes comes now.
                sleep(Duration::from_millis(20)).await;
                rustix::io::pwrite(&file, run.data.filled(), 0).expect("the file can be written");
                cached.clean(&run, &noted);
                drop(writing);
                rustix::io::pwrite(&file, &[0; 512], 0).expect("the file can be written");
                drop(zeroing);
            };
            let new = Buffer::copy_of(&[2; 512]).expect("memory");
            let (written, ()) = futures_util::future::join(volume.write_cached(&cached, 512, new), zeroes).await;
            written.expect("the file can be read");
            let expected = [[0; 512], [2; 512], [1; 512]].concat();
            let read = volume.read(0..1536).await.map_err(|(why, _)| why).expect("the file can be read");
            assert!(read.filled() == expected, "as it is read");
            volume.write_back(0..SIZE).await.expect("the file can be written");
            assert!(std::fs::read(folder.path().join("disk")).expect("a file")[..1536] == expected, "as it is kept");
        });
    }
}
