//! The pool.

use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use weir_core::base::units::{MAX_RUN, PAGE};
use weir_core::pools::page_pool::{PagePool as EnginePool, PoolStats};
use weir_linux::process::heap::HEAP;

use super::run::PoolPages;
use super::shared::Shared;
use crate::shrinker::nanoseconds;

/// Runs that are moved at a time by the batch forms.
const BATCH: usize = 16;

/// A pool of pages for the I/O of a device or a queue. Clones are the same pool; it ends with the last of them and of
/// its runs.
///
/// ```
/// use weir::PagePool;
///
/// let pool = PagePool::new("disk 0")?;
/// let mut buffer = pool.get_run(16).ok_or("no memory")?; // 64 KiB, page-aligned
/// assert_eq!(buffer.append(b"hello"), 5);
/// assert_eq!(pool.stats().in_flight_pages, 16);
/// drop(buffer); // back into the pool, for the next request
/// assert_eq!((pool.stats().in_flight_pages, pool.stats().idle_pages), (0, 16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Between requests a pool keeps pages, so that the next request finds them resident. It starts from zero and grows on
/// demand. Idle pages go back:
///
/// | when | idle pages left |
/// |---|---|
/// | the last run in flight was put back | `max_idle_pages` |
/// | 100 ms after the pool came to have more than that, with runs in flight | `max_idle_pages` |
/// | a *squeeze window* is open: for `squeeze_ms` after the last pressure event, each of which extends it | none |
/// | an allocation would fail otherwise, or [`heap::trim`](crate::heap::trim) is called | none |
///
/// Runs in flight are never touched: only a put makes a run idle.
///
/// # Settings
///
/// The values of all pools are set by [`settings`](crate::settings), also while the program runs. The values of one pool are set
/// by [`PagePool::set_max_idle_pages`] and [`PagePool::set_squeeze`].
///
/// | What | `max_idle_pages` |
/// |---|---|
/// | Since | 0.1.0 |
/// | Contact | the issues of the repository that `Cargo.toml` names |
/// | Description | Pages of 4 KiB that a pool keeps idle for its next requests. What is above goes back when the requests are done, or 100 ms later. 0: each request takes its pages anew |
/// | Range | 0 to 4,294,967,295 |
/// | Default | 1,024 (4 MiB), as of xen-blkback's `max_buffer_pages` |
///
/// | What | `squeeze_ms` |
/// |---|---|
/// | Since | 0.1.0 |
/// | Contact | the issues of the repository that `Cargo.toml` names |
/// | Description | Milliseconds after a pressure event in which pools keep nothing idle. Longer: less swap, and more pages taken anew. 0: pressure does not squeeze pools |
/// | Range | 0 to 3,600,000 (an hour) |
/// | Default | 10, as of xen-blkback's `buffer_squeeze_duration_ms` |
///
/// # Whose thread gives pages back
///
/// By default Weir's own thread, which hears of pressure itself, and the threads that put runs back. A pool made with
/// [`PagePoolBuilder::tended`](crate::PagePoolBuilder::tended) has an owner of the program's. An event then frees nothing, but wakes the owner
/// ([`PagePool::wait`], or [`pressure`](crate::pressure) for an event loop). The owner calls [`PagePool::tend`].
#[derive(Clone)]
pub struct PagePool(Shared);

impl PagePool {
    /// Pages of the longest run (4 MiB).
    pub const MAX_PAGES: usize = MAX_RUN.0;

    pub(super) fn of(shared: Shared) -> Self {
        Self(shared)
    }

    /// The pool's name, up to the last whole character that was kept.
    pub fn name(&self) -> &str {
        self.0.pool().name().utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }

    /// One page; `None` where memory is refused. Nothing of it is filled.
    pub fn get(&self) -> Option<PoolPages> {
        self.get_run(1)
    }

    /// A run of at least `pages` pages in a row (1 to [`PagePool::MAX_PAGES`]), at most a quarter more; `None` for
    /// other lengths, and where memory is refused.
    pub fn get_run(&self, pages: usize) -> Option<PoolPages> {
        let run = NonNull::new(HEAP.pool_get(self.0.pool(), pages))?;
        Some(self.pages(run, pages))
    }

    /// Fills `out` with runs of at least `pages` pages, as many as can be had; returns how many.
    ///
    /// ```
    /// let pool = weir::PagePool::new("disk 0")?;
    /// let mut pages = [const { None }; 32];
    /// assert_eq!(pool.get_batch(1, &mut pages), 32);
    /// pool.put_batch(pages.into_iter().flatten());
    /// assert_eq!(pool.stats().idle_pages, 32);
    /// # Ok::<(), weir::PoolError>(())
    /// ```
    pub fn get_batch(&self, pages: usize, out: &mut [Option<PoolPages>]) -> usize {
        let mut count = 0;
        for places in out.chunks_mut(BATCH) {
            let mut runs = [core::ptr::null_mut(); BATCH];
            let got = HEAP.pool_get_batch(self.0.pool(), pages, &mut runs[..places.len()]);
            for (place, run) in places.iter_mut().zip(&runs[..got]) {
                *place = NonNull::new(*run).map(|run| self.pages(run, pages));
            }
            count += got;
            if got < places.len() {
                break;
            }
        }
        count
    }

    /// Puts runs back together: the pool's lock is taken once for 16 of them. Those of other pools go back to theirs.
    pub fn put_batch(&self, runs: impl IntoIterator<Item = PoolPages>) {
        let mut batch = PutBatch { pool: self.0.pool(), runs: [core::ptr::null_mut(); BATCH], count: 0 };
        for run in runs {
            if !run.is_of(&self.0) {
                continue;
            }
            batch.runs[batch.count] = run.into_raw().as_ptr().cast::<u8>();
            batch.count += 1;
            if batch.count == BATCH {
                batch.put();
            }
        }
    }

    fn pages(&self, run: NonNull<u8>, pages: usize) -> PoolPages {
        let len = EnginePool::run_pages(pages) * PAGE;
        // SAFETY: the engine has just handed it out, at that length.
        unsafe { PoolPages::new(self.0.clone(), NonNull::slice_from_raw_parts(run, len)) }
    }

    /// Turns a run back into a value that [`PoolPages::into_raw`] gave up. Nothing of it counts as filled;
    /// [`PoolPages::advance`] says what is.
    ///
    /// # Safety
    /// The run is one of this pool's, from `into_raw`, and is turned back once.
    pub unsafe fn pages_from_raw(&self, run: NonNull<[u8]>) -> PoolPages {
        // SAFETY: in flight, and this value's from now on, as the caller promises.
        unsafe { PoolPages::new(self.0.clone(), run) }
    }

    /// Sets how many pages the pool keeps idle; `None`: what the setting `max_idle_pages` says. It counts from the next
    /// put on, or the next time that the pool is tended.
    pub fn set_max_idle_pages(&self, pages: Option<usize>) {
        self.0.pool().set_max_idle_pages(pages.map(own));
    }

    /// Sets for how long the pool keeps nothing idle after a pressure event, whole milliseconds; `None`: what the
    /// setting
    /// `squeeze_ms` says. It counts at once, also for an event that was before.
    pub fn set_squeeze(&self, time: Option<Duration>) {
        self.0.pool().set_squeeze_ms(time.map(milliseconds));
    }

    /// Does the work of the owner of a [tended](crate::PagePoolBuilder::tended) pool. If there was a pressure event since the
    /// last call, or the window of one is open, it gives up all that is idle. Else it gives up what is above `max_idle_pages`.
    /// Returns the pages given up for pressure. Any thread may call it, of any pool.
    pub fn tend(&self) -> usize {
        HEAP.tend_pool(self.0.pool())
    }

    /// Sleeps until there is a pressure event that [`PagePool::tend`] has not answered, for `timeout` at most (for ever
    /// without one); it may return earlier.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = weir::PagePool::builder("ring 0").tended().build()?;
    /// # for _ in 0..1 {
    /// // In the owner's loop:
    /// pool.wait(Some(Duration::from_millis(1)));
    /// pool.tend();
    /// # }
    /// # Ok::<(), weir::PoolError>(())
    /// ```
    pub fn wait(&self, timeout: Option<Duration>) {
        HEAP.wait_for_squeeze(self.0.pool(), timeout.map(nanoseconds));
    }

    /// The pool's figures now.
    pub fn stats(&self) -> PoolStats {
        HEAP.pool_stats(self.0.pool())
    }
}

/// A pool's own number of idle pages: the engine takes the largest number for the setting of all pools.
pub(super) fn own(pages: usize) -> usize {
    pages.min(usize::MAX - 1)
}

/// Whole milliseconds; a part of one is one.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX - 1)
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePool").field("name", &self.name()).field("stats", &self.stats()).finish()
    }
}

/// Runs on their way back into a pool; what is left is put back when this is dropped, also where the program's iterator panics.
struct PutBatch<'a> {
    pool: &'a EnginePool,
    runs: [*mut u8; BATCH],
    count: usize,
}

impl PutBatch<'_> {
    fn put(&mut self) {
        let runs = &self.runs[..core::mem::take(&mut self.count)];
        if !runs.is_empty() {
            // SAFETY: runs of this pool's that `into_raw` gave up.
            unsafe { HEAP.pool_put(self.pool, runs) }
        }
    }
}

impl Drop for PutBatch<'_> {
    fn drop(&mut self) {
        self.put();
    }
}
