//! Making written data durable, for all connections of all workers.
//!
//! One `fdatasync` at a time, by one open file. The kernel reports a failed write-back once to each open file, to
//! whichever call comes first, and then forgets the data that was lost. With two calls under way, one could succeed
//! because the other was told. So requests that come while a call is under way wait for the next one, which is theirs
//! together. After a failure no flush of that file succeeds any more, since it is not known which data is on the disk.
//!
//! Where the block cache has dirty blocks, they are written to the file first.

use super::medium::Medium;
use crate::cache::{BLOCK, CachedFile, FileId, Run};
use crate::io;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// Time after which a dirty block is written below, at most, unless that fails.
const DELAY: Duration = Duration::from_secs(1);

/// A request for the next round.
struct Waiter {
    /// Not only written below, but durable.
    syncs: bool,
    /// Gets the error of the round.
    deliver: oneshot::Sender<Option<i32>>,
}

/// The flushes of one volume.
pub struct Flusher {
    medium: Arc<Medium>,
    /// The cached file that is written below before a flush; none of a volume that is only read.
    cached: Option<Arc<CachedFile>>,
    id: FileId,
    state: Mutex<State>,
    /// A task waits for the time to write dirty blocks below.
    is_due: AtomicBool,
    /// The last time, it failed.
    has_failed: AtomicBool,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// Requests that the next call serves.
    waiting: Vec<Waiter>,
}

/// Files of which a flush has failed, and how. A file that is opened anew is not told by the kernel.
static FAILED: Mutex<BTreeMap<FileId, i32>> = Mutex::new(BTreeMap::new());

impl Flusher {
    /// The flushes of a file known as `id`.
    pub(super) fn new(medium: Arc<Medium>, cached: Option<Arc<CachedFile>>, id: FileId) -> Self {
        let (is_due, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { medium, cached, id, state: Mutex::default(), is_due, has_failed }
    }

    /// How a flush of this file has failed, if one has since the server was started.
    pub(super) fn failed(&self) -> Option<i32> {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get(&self.id).copied()
    }

    /// All blocks that were dirty before this was called are in the file when it returns. After an error, those that
    /// could not be written are still dirty.
    pub async fn write_back(self: &Arc<Self>) -> Result<()> {
        self.wait(false).await
    }

    /// Has dirty blocks written below soon.
    pub fn write_back_later(self: &Arc<Self>) {
        if self.is_due.swap(true, Relaxed) {
            return;
        }
        let flusher = self.clone();
        // A worker that is stopped does not wait for it: the server's end writes all that is dirty.
        tokio::task::spawn_local(async move {
            sleep(DELAY).await;
            flusher.is_due.store(false, Relaxed);
            match flusher.write_back().await {
                Ok(()) => flusher.has_failed.store(false, Relaxed),
                Err(why) => {
                    if !flusher.has_failed.swap(true, Relaxed) {
                        tracing::error!("blocks could not be written below, and stay in the cache: {why}");
                    }
                    flusher.write_back_later();
                }
            }
        });
    }

    /// All that was written before this was called is durable when it returns; or an error, and then never again a
    /// success.
    pub async fn flush(self: &Arc<Self>) -> Result<()> {
        self.wait(true).await
    }

    /// Flushes as [`Self::flush`] does, at the server's end, whatever became of the worker that had an earlier flush. It
    /// writes and flushes also after a failure, and says all the same that there was one.
    pub async fn flush_at_end(&self) -> Result<()> {
        let written = match &self.cached {
            Some(cached) => write_back(&self.medium, cached).await,
            None => Ok(()),
        };
        // Also where some blocks cannot be written: the others are in the file now, and there is no later flush.
        let synced = io::sync(&self.medium.file, self.medium.inline).await;
        // The kernel reports lost data once: this flush may succeed without it.
        self.failed().map_or(Ok(()), |error| Err(Error::from_raw_os_error(error))).and(written).and(synced)
    }

    /// Waits for the next round.
    async fn wait(self: &Arc<Self>, syncs: bool) -> Result<()> {
        let (deliver, result) = oneshot::channel();
        let is_first = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.waiting.push(Waiter { syncs, deliver });
            !std::mem::replace(&mut state.is_running, true)
        };
        if is_first {
            // A task of its own: it goes on for others when this request's connection has ended.
            io::spawn(self.clone().run());
        }
        // The round's task may have ended with its worker.
        match result.await.unwrap_or(Some(libc::EIO)) {
            None => Ok(()),
            Some(error) => Err(Error::from_raw_os_error(error)),
        }
    }

    async fn sync(&self) -> Result<()> {
        loop {
            match io::sync(&self.medium.file, self.medium.inline).await {
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Flushes until no request waits.
    async fn run(self: Arc<Self>) {
        loop {
            let waiting = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.is_running = !state.waiting.is_empty();
                std::mem::take(&mut state.waiting)
            };
            if waiting.is_empty() {
                return;
            }
            let written = match &self.cached {
                Some(cached) => write_back(&self.medium, cached).await,
                None => Ok(()),
            };
            let written = written.err().map(|why| why.raw_os_error().unwrap_or(libc::EIO));
            // What could not be written is not lost: a later flush may succeed.
            let synced = match self.failed().or(written) {
                None if waiting.iter().any(|waiter| waiter.syncs) => self.sync_once().await,
                before => before,
            };
            for Waiter { syncs, deliver } in waiting {
                // The request's task may have ended with its worker.
                let _ = deliver.send(if syncs { synced } else { written });
            }
        }
    }

    /// Makes it durable, or remembers that this failed.
    async fn sync_once(&self) -> Option<i32> {
        let why = self.sync().await.err()?;
        tracing::error!("a flush failed, and what was written before may be lost: {why}; every later one fails too");
        let failed = why.raw_os_error().unwrap_or(libc::EIO);
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).insert(self.id, failed);
        Some(failed)
    }
}

/// Runs that are written at a time.
const AT_ONCE: usize = 4;

/// The runs to be written next, and `from` is behind them. Without memory for a copy of one there are those before it:
/// when they are written, their memory is free. It is an error only if there is none before it.
fn next_runs(from: &mut u64, next_run: impl Fn(u64) -> Result<Option<Run>>) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    while runs.len() < AT_ONCE {
        match next_run(*from) {
            Ok(Some(run)) => {
                *from = run.first + run.versions.len() as u64;
                runs.push(run);
            }
            Err(why) if runs.is_empty() => return Err(why),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(runs)
}

/// Writes all blocks that are dirty when its turn comes, and none that becomes dirty later: else a client that writes at the
/// disk's speed would keep a flush waiting. Those that cannot be written stay dirty, and the first error is returned; the others
/// are written all the same.
pub async fn write_back(medium: &Medium, cached: &CachedFile) -> Result<()> {
    let Some(dirty) = cached.dirty() else { return Ok(()) };
    // Another has it where the file is exported twice.
    let _writing = dirty.writing().await;
    let (newest, mut from, mut result) = (dirty.added(), 0, Ok(()));
    loop {
        let runs = match next_runs(&mut from, |from| dirty.next_run(from, newest)) {
            Ok(runs) if runs.is_empty() => return result,
            Ok(runs) => runs,
            Err(why) => return result.and(Err(why)),
        };
        let writes = runs.into_iter().map(async |mut run| {
            let noted = cached.before_writing_back(&run);
            let length = run.data.filled().len();
            let offset = run.first * BLOCK as u64;
            run.data = medium.write(offset, run.data, 0..length).await?;
            cached.clean(&run, &noted);
            Ok(())
        });
        result = join_all(writes).await.into_iter().fold(result, Result::and);
    }
}

#[cfg(test)]
mod tests {
    use super::super::open::{Source, identity};
    use super::super::testing::run;
    use super::*;
    use crate::base::size::Size;
    use crate::buffers::Buffer;
    use crate::cache::BlockCache;
    use crate::io::Inline;
    use rustix::fs::fstat;
    use std::cell::RefCell;
    use std::os::fd::OwnedFd;

    fn medium(file: OwnedFd) -> Arc<Medium> {
        Arc::new(Medium { file: Arc::new(file), direct: None, inline: Inline::Never, _lock: None })
    }

    /// Of a file of its own.
    fn flusher() -> Arc<Flusher> {
        let file: OwnedFd = tempfile::tempfile().expect("a file").into();
        let id = identity(&fstat(&file).expect("a file"));
        Arc::new(Flusher::new(medium(file), None, id))
    }

    #[test]
    fn many_flushes_succeed() {
        run(async {
            let flusher = flusher();
            let results = futures_util::future::join_all((0..20).map(|_| flusher.flush())).await;
            assert!(results.iter().all(Result::is_ok));
        });
    }

    #[test]
    fn after_a_failure_no_flush_succeeds() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let source = |create| Source::Path { path: folder.path().join("disk"), create: Some(Size(create)) };
            let before = source(1 << 20).open(false, None).expect("a volume");
            before.flush().await.expect("a file can be flushed");
            // A pipe cannot be flushed.
            let (_reader, writer) = std::io::pipe().expect("a pipe");
            let failed = Flusher::new(medium(writer.into()), None, before.flusher.id);
            assert!(Arc::new(failed).flush().await.is_err());
            // Not of what is opened anew either.
            let after = source(2 << 20).open(false, None).expect("a volume");
            for again in [before.flush().await, after.flush().await, after.flusher.flush_at_end().await] {
                let error = again.expect_err("it has failed before");
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            }
            // It stays open: no file of another test's gets its number.
            std::mem::forget(before);
        });
    }

    #[test]
    fn where_there_is_no_memory_for_a_run_those_before_it_are_written() {
        let room = std::cell::Cell::new(2);
        // Blocks 0, 2, 4 and so on, each a run.
        let next_run = |from: u64| match room.replace(room.get() - 1) {
            0 => Err(Error::from(ErrorKind::OutOfMemory)),
            _ => Ok(Some(Run { first: from + from % 2, data: Buffer::copy_of(&[1])?, versions: vec![0] })),
        };
        let mut from = 0;
        let runs = next_runs(&mut from, next_run).expect("there is memory for two");
        assert_eq!((runs.iter().map(|run| run.first).collect::<Vec<_>>(), from), (vec![0, 2], 3));
        // They were written, and nothing is free all the same.
        room.set(0);
        assert!(next_runs(&mut from, next_run).is_err());
        assert_eq!(from, 3, "it is tried again");
        room.set(9);
        assert_eq!(next_runs(&mut from, next_run).expect("memory").len(), AT_ONCE);
        assert!(next_runs(&mut from, |_| Ok(None)).expect("nothing is dirty").is_empty());
    }

    #[test]
    fn a_round_leaves_what_becomes_dirty_during_it_to_the_next() {
        run(async {
            let file = tempfile::tempfile().expect("a file");
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let cached = cache.file(FileId { device: 1, inode: None });
            let medium = medium(file.try_clone().expect("a file").into());
            let write = |block| assert!(cached.write_dirty(block, 0, &[7; BLOCK], None).expect("memory"));
            let is_dirty = |block| cached.dirty().expect("it writes back").contains(block);
            [5, 9, 100].into_iter().for_each(write);
            // While the round's first writes are under way: before it, in it and behind it.
            let new = [4, 6, 10, 50, 99, 101, 200];
            let written = async {
                write_back(&medium, &cached).await.expect("the file can be written");
                assert!(![5, 9, 100].iter().any(|block| is_dirty(*block)));
                assert!(new.iter().all(|block| is_dirty(*block)));
            };
            futures_util::future::join(written, async { new.into_iter().for_each(write) }).await;
            write_back(&medium, &cached).await.expect("the file can be written");
            assert!(!new.iter().any(|block| is_dirty(*block)));
            assert_eq!(fstat(&file).expect("a file").st_size, 201 * BLOCK as i64);
        });
    }

    #[test]
    fn a_flush_that_comes_during_one_waits_for_the_next() {
        run(async {
            let flusher = flusher();
            let order = RefCell::new(Vec::new());
            let flush = async |name| {
                flusher.flush().await.expect("a file can be flushed");
                order.borrow_mut().push(name);
            };
            let late = async {
                // Not before the first call has taken its waiters.
                while !flusher.state.lock().expect("no panic").waiting.is_empty() {
                    tokio::task::yield_now().await;
                }
                flush("late").await;
            };
            futures_util::future::join(flush("first"), late).await;
            assert_eq!(*order.borrow(), ["first", "late"]);
            assert!(!flusher.state.lock().expect("no panic").is_running);
        });
    }
}
