//! The page pools of all connections: their figures, and what can be set of them while the server runs.

use crate::base::Failure;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir::{PagePool, settings};

/// Figures of the connections' pools together. All but the first three are totals since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFigures {
    /// Pools that there are now: connections that have had a request with data lately.
    pub count: usize,
    /// Pages kept for the next requests.
    pub idle_pages: usize,
    /// Pages that requests have now.
    pub in_flight_pages: usize,
    /// Buffers asked for.
    pub gets: u64,
    /// Buffers asked for that took new pages.
    pub misses: u64,
    /// Pressure events for which a pool gave idle pages up, of each pool.
    pub squeezes: u64,
    /// Pages given up for these.
    pub squeezed_pages: u64,
    /// Misses that took pages which a squeeze had given up.
    pub misses_after_squeeze: u64,
}

impl PoolFigures {
    /// Adds a pool's.
    fn add(&mut self, pool: &PagePool) {
        let stats = pool.stats();
        self.count += 1;
        self.idle_pages += stats.idle_pages;
        self.in_flight_pages += stats.in_flight_pages;
        self.gets += stats.gets;
        self.misses += stats.misses;
        self.squeezes += stats.squeezes;
        self.squeezed_pages += stats.squeezed_pages;
        self.misses_after_squeeze += stats.misses_after_squeeze;
    }

    /// The totals alone.
    fn totals(self) -> Self {
        Self { count: 0, idle_pages: 0, in_flight_pages: 0, ..self }
    }
}

/// Settings of pools that can change while the server runs; `None`: as it was when the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Pages that each connection keeps for its next requests.
    pub max_idle_pages: Option<u64>,
    /// Milliseconds after memory pressure in which it keeps none.
    pub squeeze_ms: Option<u64>,
}

impl PoolSettings {
    /// The values with their names in Weir's settings.
    fn named(self) -> [(&'static str, Option<u64>); 2] {
        [("max_idle_pages", self.max_idle_pages), ("squeeze_ms", self.squeeze_ms)]
    }

    /// Whether all can be set: they are outside of no range.
    pub fn check(self) -> Result<(), Failure> {
        for (name, value) in self.named() {
            let setting = settings::all().find(|setting| setting.name == name).expect("a setting of Weir's");
            if value.is_some_and(|value| !(setting.min..=setting.max).contains(&value)) {
                let (name, value) = (name.replace('_', "-"), value.unwrap_or_default());
                return Err(Failure::new(format!(
                    "{name}: {value} is not between {} and {}",
                    setting.min, setting.max
                )));
            }
        }
        Ok(())
    }
}

/// The pools that there are, for figures and settings. Clones are the same.
#[derive(Clone)]
pub struct Pools(Arc<Shared>);

struct Shared {
    known: Mutex<Known>,
    /// The settings before the server set any: Weir's defaults, or the environment's.
    at_start: PoolSettings,
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
        let now = |name| settings::get(name).ok();
        let at_start = PoolSettings { max_idle_pages: now("max_idle_pages"), squeeze_ms: now("squeeze_ms") };
        Self(Arc::new(Shared { known: Mutex::default(), at_start }))
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
        for ((name, value), (_, start)) in wanted.named().into_iter().zip(self.0.at_start.named()) {
            if let Some(value) = value.or(start) {
                settings::set_number(name, value).map_err(Failure::because("page pools"))?;
            }
        }
        Ok(())
    }

    /// Figures of all together.
    pub fn figures(&self) -> PoolFigures {
        let known = self.known();
        let mut sum = known.gone.clone();
        known.pools.iter().for_each(|(_, pool)| sum.add(pool));
        sum
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
