//! Registered buffers of a worker: runs of pages in the slots of its ring, for direct I/O.
//!
//! Of direct I/O the kernel looks up and pins each page for each request. Of a registered run it did so once. On 64 KiB that
//! saves a third of the processor time of a read, on 1 MiB two thirds (`fio --fixedbufs`, Linux 6.18). I/O through the
//! kernel's page cache copies, and gains nothing.
//!
//! A run is registered when a request is about to use it and the table has no idle one of its length. It stays for the
//! next requests until memory is short (`FixedTable::squeeze`), or the worker has had no use for it for a while. Where the
//! kernel is too old, or the limit of locked memory (`RLIMIT_MEMLOCK`) is reached, requests use plain memory.

use super::remote::Remote;
use super::ring::{self, Ring};
use crate::buffers::{Buffer, FixedRun, Registered, Table, locked};
use std::cell::{Cell, OnceCell, RefCell};
use std::io::Result;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::sleep;
use weir::zone::Zone;
use weir::{PagePool, PoolPages, settings};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Slots of a ring: as many requests as disks take at a time, and some more.
const SLOTS: u16 = 64;
/// The slot behind them, of locked memory.
const LOCKED: u16 = SLOTS;
/// Between two looks whether the registered runs are still used.
const QUIET: Duration = Duration::from_secs(5);

/// A worker's registered buffers.
pub struct Fixed {
    table: Arc<Table>,
    pool: PagePool,
    /// All of the locked memory is registered.
    has_locked: bool,
    /// Slots that are empty.
    empty: RefCell<Vec<u16>>,
    /// Pages in slots. Those of all workers together are in `all_pages`.
    pages: Cell<usize>,
    all_pages: Arc<AtomicUsize>,
    /// The kernel has refused a run: no more than there are now, until the next look.
    is_refused: Cell<bool>,
    is_used: Cell<bool>,
    is_watched: Cell<bool>,
    /// Squeezes so far: the last one's window counts.
    squeezes: Cell<u64>,
}

thread_local! {
    static FIXED: OnceCell<Rc<Fixed>> = const { OnceCell::new() };
}

/// This thread's ring, and the buffers that are registered with it, if any are to be.
fn current() -> Option<(Rc<Ring>, Rc<Fixed>)> {
    Some((ring::current()?, FIXED.with(|cell| cell.get().cloned())?))
}

/// Room for `capacity` bytes of direct I/O on this worker: registered with its ring if that can be.
pub fn take_fixed(capacity: usize) -> Result<Buffer> {
    let take = |(ring, fixed): (Rc<Ring>, Rc<Fixed>)| {
        let locked = || fixed.has_locked.then(|| Buffer::locked(capacity)).flatten();
        locked().or_else(|| fixed.take(&ring, capacity))
    };
    match current().and_then(take) {
        Some(buffer) => Ok(buffer),
        None => Buffer::take(capacity),
    }
}

/// The slot of a buffer in this thread's ring.
pub(super) fn slot(buffer: &Buffer) -> Option<u16> {
    FIXED.with(|cell| {
        let fixed = cell.get()?;
        if buffer.is_locked() { fixed.has_locked.then_some(LOCKED) } else { buffer.slot_in(&fixed.table) }
    })
}

/// The way of a pressure event to a worker's registered runs, from any thread.
#[derive(Clone)]
pub struct Squeezer {
    table: Arc<Table>,
    remote: Remote,
}

impl Squeezer {
    /// No run stays registered that no request holds; for `duration`, none becomes so.
    pub fn squeeze(&self, duration: Duration) {
        // At once: what is put before the worker wakes is retired too.
        self.table.squeeze();
        self.remote.run(move || {
            tokio::task::spawn_local(squeeze(duration));
        });
    }
}

/// The worker's side of a squeeze; each extends the window.
async fn squeeze(duration: Duration) {
    let Some((ring, fixed)) = current() else { return };
    // Another event's window may have ended since this event.
    fixed.table.squeeze();
    fixed.empty_slots(&ring);
    let this = fixed.squeezes.get() + 1;
    fixed.squeezes.set(this);
    sleep(duration).await;
    if fixed.squeezes.get() == this {
        fixed.is_refused.set(false);
        fixed.table.relax();
        fixed.empty_slots(&ring);
    }
}

/// Looks at the registered runs every now and then until none is left.
async fn watch() {
    let Some((ring, fixed)) = current() else { return };
    while fixed.pages.get() > 0 {
        sleep(QUIET).await;
        fixed.is_refused.set(false);
        if !fixed.is_used.replace(false) {
            fixed.table.retire_idle();
        }
        fixed.empty_slots(&ring);
    }
    fixed.is_watched.set(false);
}

impl Fixed {
    /// Registers buffers of this thread's ring from now on, runs of `pool`; `all_pages` counts them. `None`: there is no ring,
    /// or it has no slots.
    pub fn register(pool: PagePool, all_pages: Arc<AtomicUsize>, remote: Remote) -> Option<Squeezer> {
        let ring = ring::current()?;
        if let Err(why) = ring.make_slots(SLOTS + 1) {
            tracing::debug!("no buffers are registered: {why}");
            return None;
        }
        let fill = |zone: &Zone| {
            // SAFETY: the locked memory stays until the process ends.
            let filled = unsafe { ring.fill_slot(LOCKED, zone.as_ptr().as_ptr(), zone.size()) };
            filled.inspect_err(|why| tracing::warn!("the locked memory is not registered: {why}")).is_ok()
        };
        let has_locked = locked::zone().is_some_and(fill);
        let table = Arc::new(Table::new());
        let squeezer = Squeezer { table: table.clone(), remote };
        let fixed = Rc::new(Self {
            table,
            pool,
            has_locked,
            empty: RefCell::new((0..SLOTS).rev().collect()),
            pages: Cell::new(0),
            all_pages,
            is_refused: Cell::new(false),
            is_used: Cell::new(false),
            is_watched: Cell::new(false),
            squeezes: Cell::new(0),
        });
        let is_new = ring.keep(fixed.clone()) && FIXED.with(|cell| cell.set(fixed)).is_ok();
        is_new.then_some(squeezer)
    }

    /// Room for `capacity` bytes in a registered run, for a request.
    pub fn take(&self, ring: &Ring, capacity: usize) -> Option<Buffer> {
        if !(PAGE..=PagePool::MAX_PAGES * PAGE).contains(&capacity) || self.table.is_squeezed() {
            return None;
        }
        let pages = capacity.div_ceil(PAGE);
        let registered = self.table.hold(pages).or_else(|| self.add(ring, pages))?;
        self.is_used.set(true);
        if !self.is_watched.replace(true) {
            tokio::task::spawn_local(watch());
        }
        Some(Buffer::fixed(FixedRun::new(registered, &self.table), capacity))
    }

    /// Registers a run of at least `pages` pages.
    fn add(&self, ring: &Ring, pages: usize) -> Option<Registered<PoolPages>> {
        if self.is_refused.get() {
            return None;
        }
        let most = settings::get("max_idle_pages").unwrap_or(0) as usize;
        // A pool's run may be a quarter longer than what was asked for.
        let longest = pages + pages / 4;
        if longest > most {
            return None;
        }
        while self.empty.borrow().is_empty() || self.pages.get() + longest > most {
            // The one that was not used for longest: of a length that is not wanted any more.
            if !self.table.retire_oldest() {
                return None;
            }
            self.empty_slots(ring);
        }
        let slot = *self.empty.borrow().last()?;
        let mut run = self.pool.get_run(pages)?;
        // SAFETY: the run stays where it is, and is not given back before the slot has been emptied. It lies in the table or
        // in a `FixedRun`, which puts it there, until `empty_slots` has it.
        if let Err(why) = unsafe { ring.fill_slot(slot, run.as_mut_ptr(), run.capacity()) } {
            tracing::debug!("the kernel registers no more buffers ({why}): requests use plain memory");
            self.is_refused.set(true);
            return None;
        }
        self.empty.borrow_mut().pop();
        let pages = run.capacity() / PAGE;
        self.count(self.pages.get() + pages);
        Some(Registered { slot, run, pages })
    }

    /// Empties the slots of retired runs, then gives the runs back.
    fn empty_slots(&self, ring: &Ring) {
        let mut is_any = false;
        for registered in self.table.take_retired() {
            if let Err(why) = ring.empty_slot(registered.slot) {
                tracing::warn!("a registered buffer stays in its slot: {why}");
                self.table.retire(registered);
                continue;
            }
            self.empty.borrow_mut().push(registered.slot);
            self.count(self.pages.get() - registered.pages);
            is_any = true;
        }
        if is_any {
            // In a squeeze window Weir's thread is to release them now, not when the window ends.
            self.pool.tend();
        }
    }

    fn count(&self, pages: usize) {
        self.all_pages.fetch_add(pages, Relaxed);
        self.all_pages.fetch_sub(self.pages.replace(pages), Relaxed);
    }
}
