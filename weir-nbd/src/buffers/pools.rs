//! A page pool a worker.
//!
//! Not one a connection: each keeps up to `max_idle_pages` between requests, so that ten thousand quiet clients would
//! keep forty GiB, while those of a worker are served by one thread, one after another, and use the same pages in turn.
//! Not one for all: workers would wait for its lock.
//!
//! Weir's thread, which hears of memory pressure, is the owner of the pools: a worker that sleeps in the kernel need
//! not be woken to give plain memory back. What it puts back in a squeeze window it gives up itself.

use crate::base::Failure;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use weir::{PagePool, PoolPages, settings};

thread_local! {
    static POOL: RefCell<Option<PagePool>> = const { RefCell::new(None) };
}

/// The calling thread's buffers come from `pool` from now on.
pub fn use_pool(pool: PagePool) {
    POOL.set(Some(pool));
}

/// A run of `pages` pages of the thread's pool; `None`: it has none, or a run cannot be so long, or there is no memory.
pub(super) fn get(pages: usize) -> Option<PoolPages> {
    POOL.with_borrow(|pool| pool.as_ref()?.get_run(pages))
}

/// What can be set of pools, while the server runs; `None`: as it was when the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Pages that each worker keeps for its next requests.
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

/// The pools of all workers.
pub struct Pools {
    pools: Vec<PagePool>,
    /// Weir's settings when the server started: its defaults, or the environment's.
    at_start: PoolSettings,
}

impl Pools {
    /// A pool for each of so many workers.
    pub fn new(workers: usize) -> Result<Self, Failure> {
        let pool = |number| PagePool::new(&format!("worker {number}")).map_err(Failure::because("a page pool"));
        let now = |name| settings::get(name).ok();
        let at_start = PoolSettings { max_idle_pages: now("max_idle_pages"), squeeze_ms: now("squeeze_ms") };
        Ok(Self { pools: (0..workers).map(pool).collect::<Result<_, _>>()?, at_start })
    }

    /// A worker's pool.
    pub fn of(&self, worker: usize) -> PagePool {
        self.pools[worker].clone()
    }

    /// Sets what is given, and the rest as it was at the start. It counts from the next request on.
    pub fn set(&self, wanted: PoolSettings) -> Result<(), Failure> {
        for ((name, value), (_, start)) in wanted.named().into_iter().zip(self.at_start.named()) {
            if let Some(value) = value.or(start) {
                settings::set_number(name, value).map_err(Failure::because("page pools"))?;
            }
        }
        Ok(())
    }

    /// Figures of each.
    pub fn figures(&self) -> Vec<PoolFigures> {
        self.pools.iter().map(PoolFigures::of).collect()
    }
}

/// A pool's figures. All but the pages are totals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFigures {
    pub name: String,
    /// Pages kept for the next requests.
    pub idle_pages: usize,
    /// Pages that requests have now.
    pub in_flight_pages: usize,
    /// Buffers asked for.
    pub gets: u64,
    /// Of these, such that took new pages.
    pub misses: u64,
    /// Pressure events for which idle pages were given up.
    pub squeezes: u64,
    /// Pages given up for these.
    pub squeezed_pages: u64,
    /// Misses that took pages which a squeeze had given up.
    pub misses_after_squeeze: u64,
}

impl PoolFigures {
    fn of(pool: &PagePool) -> Self {
        let stats = pool.stats();
        Self {
            name: pool.name().into(),
            idle_pages: stats.idle_pages,
            in_flight_pages: stats.in_flight_pages,
            gets: stats.gets,
            misses: stats.misses,
            squeezes: stats.squeezes,
            squeezed_pages: stats.squeezed_pages,
            misses_after_squeeze: stats.misses_after_squeeze,
        }
    }

    /// All pools together.
    pub fn sum(all: &[Self]) -> Self {
        all.iter().fold(Self::default(), |sum, one| Self {
            name: String::new(),
            idle_pages: sum.idle_pages + one.idle_pages,
            in_flight_pages: sum.in_flight_pages + one.in_flight_pages,
            gets: sum.gets + one.gets,
            misses: sum.misses + one.misses,
            squeezes: sum.squeezes + one.squeezes,
            squeezed_pages: sum.squeezed_pages + one.squeezed_pages,
            misses_after_squeeze: sum.misses_after_squeeze + one.misses_after_squeeze,
        })
    }
}
