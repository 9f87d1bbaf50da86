//! The page pools of all connections.

use super::pool_figures::PoolFigures;
use super::pool_settings::{PoolSettings, SettingsAtStart};
use crate::base::Failure;
use slab::Slab;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir::PagePool;

/// The pools that there are, for figures and settings. Clones are the same.
#[derive(Clone)]
pub struct Pools(Arc<Shared>);

struct Shared {
    known: Mutex<Known>,
    /// Pages that are registered with rings.
    registered: Arc<AtomicUsize>,
    at_start: SettingsAtStart,
}

#[derive(Default)]
struct Known {
    pools: Slab<PagePool>,
    /// Totals of the pools that are gone.
    gone: PoolFigures,
}

impl Pools {
    /// None, with the settings as they are now.
    #[allow(clippy::new_without_default, reason = "it reads the process's settings")]
    pub fn new() -> Self {
        let (known, registered) = (Mutex::default(), Arc::default());
        Self(Arc::new(Shared { known, registered, at_start: SettingsAtStart::read() }))
    }

    /// A pool of a worker's, for the runs that it registers with its ring, and the count of all such pages. `None`: there
    /// is no memory.
    pub fn registered(&self, worker: usize) -> Option<(PagePool, Arc<AtomicUsize>)> {
        Some((PagePool::new(&format!("registered {worker}")).ok()?, self.0.registered.clone()))
    }

    /// Makes a pool under a name; with its number for [`Pools::remove`]. `None`: there is no memory.
    pub(super) fn add(&self, name: &str) -> Option<(usize, PagePool)> {
        let pool = PagePool::new(name).ok()?;
        Some((self.known().pools.insert(pool.clone()), pool))
    }

    /// Forgets a pool, and keeps its totals.
    pub(super) fn remove(&self, number: usize) {
        let mut known = self.known();
        let pool = known.pools.remove(number);
        known.gone.add(&pool);
        known.gone = std::mem::take(&mut known.gone).totals();
    }

    /// Sets what is given, and the rest as it was at the start. It counts from the next request on.
    pub fn set(&self, wanted: PoolSettings) -> Result<(), Failure> {
        self.0.at_start.set(wanted)
    }

    /// Figures of all together.
    pub fn figures(&self) -> PoolFigures {
        let known = self.known();
        let mut sum = known.gone.clone();
        known.pools.iter().for_each(|(_, pool)| sum.add(pool));
        sum.registered_pages = self.0.registered.load(Relaxed);
        sum
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
