//! Values that futures compute, on any runtime.

use core::convert::Infallible;
use core::future::Future;
use core::hash::{BuildHasher, Hash};

use super::cache::EvictableCache;
use super::guards::Entry;
use crate::evictable_cache::load::fresh::Fresh;

impl<K: Eq + Hash + 'static, V: 'static, S: BuildHasher> EvictableCache<K, V, S> {
    /// Gets the entry of a key, or that of the value that `load` gives. It is [`EvictableCache::get_or_insert_with`] for tasks of
    /// any runtime. Others that want the same key meanwhile wait: a task by its waker, a thread by sleeping.
    ///
    /// The future may be dropped at any time. If it was the one that loads, all who wait are woken, and the next of them
    /// loads; so it is if `load` panics. A task that loads and is not polled keeps the others waiting. So does a `load` that
    /// waits for its own key by this function. Give `load` a time limit where either may happen.
    ///
    /// # Panics
    /// As [`EvictableCache::get_or_insert_with`] if that is called for the same key inside `load`, by what `load` drops, or by what
    /// runs before the value is in: the weigher, `expire_after`, a listener. Called for another task's key it blocks its thread: do
    /// not use it on a runtime's threads for keys that tasks load.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use weir::EvictableCache;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let pages = Arc::new(EvictableCache::<u32, String>::builder().build().unwrap());
    /// let tasks = (0..8).map(|_| {
    ///     let pages = pages.clone();
    ///     // Loaded once; each task gets the entry.
    ///     tokio::spawn(async move { pages.get_or_insert_async(1, fetch(1)).await.into_owned(&pages) })
    /// });
    /// for task in tasks.collect::<Vec<_>>() {
    ///     assert_eq!(**task.await.unwrap(), *"page 1");
    /// }
    /// # }
    ///
    /// async fn fetch(page: u32) -> String {
    ///     tokio::task::yield_now().await;
    ///     format!("page {page}")
    /// }
    /// ```
    pub async fn get_or_insert_async(&self, key: K, load: impl Future<Output = V>) -> Entry<'_, K, V> {
        match self.try_get_or_insert_async(key, async { Ok::<V, Infallible>(load.await) }).await {
            Ok(entry) => entry,
        }
    }

    /// [`EvictableCache::get_or_insert_async`] of a future that can fail: its error is returned to the caller alone, and the next
    /// who waits loads.
    ///
    /// So those who wait for a value that cannot be had fail one after another, and a time limit of `load` alone is waited for by
    /// each in turn. Give the whole call one as well, or have the failure as a value that lives for a moment
    /// ([`EvictableCache::try_get_or_insert_with`]).
    ///
    /// # Errors
    /// The future's own.
    ///
    /// # Panics
    /// As [`EvictableCache::get_or_insert_async`].
    pub async fn try_get_or_insert_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<Entry<'_, K, V>, E> {
        let hash = self.hash(&key);
        if let Some(hold) = self.shared.get(hash, |other| *other == key) {
            // By name, while the hold is in a variable: a panic drops that, and not what a function gives.
            drop((key, load));
            return Ok(Entry(hold));
        }
        let fresh = self.fresh(hash, key).unwrap_or_else(|key| self.spare(hash, key));
        self.shared.get_or_load(fresh, load, Fresh::write).await.map(Entry)
    }
}
