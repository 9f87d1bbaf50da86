//! How a pool is made.

use core::time::Duration;
use weir_core::pools::page_pool::PoolSpec;

use super::errors::PoolError;
use super::pool::{PagePool, milliseconds, own};
use super::shared::Shared;

/// Sets out how a [`PagePool`] is made; [`PagePool::builder`] begins it.
#[derive(Clone, Copy, Debug)]
pub struct PagePoolBuilder<'a>(PoolSpec<'a>);

impl PagePoolBuilder<'_> {
    /// Pages that the pool keeps idle, in place of what the setting `max_idle_pages` says.
    pub fn max_idle_pages(mut self, pages: usize) -> Self {
        self.0.max_idle_pages = Some(own(pages));
        self
    }

    /// For how long the pool keeps nothing idle after a pressure event, whole milliseconds, in place of what the
    /// setting
    /// `squeeze_ms` says. Zero: it is not squeezed.
    pub fn squeeze(mut self, time: Duration) -> Self {
        self.0.squeeze_ms = Some(milliseconds(time));
        self
    }

    /// A thread of the program's is the owner, and calls [`PagePool::tend`]: in a loop with [`PagePool::wait`], or in
    /// an event loop after [`pressure`](crate::pressure) events. Weir's thread then takes idle pages only where an
    /// allocation would fail otherwise, or the program calls [`heap::trim`](crate::heap::trim).
    pub fn tended(mut self) -> Self {
        self.0.is_tended = true;
        self
    }

    /// Makes the pool. From now on Weir listens for pressure, on a thread of its own.
    ///
    /// # Errors
    /// [`PoolError::OutOfMemory`].
    pub fn build(self) -> Result<PagePool, PoolError> {
        Shared::new(&self.0).map(PagePool::of)
    }
}

impl PagePool {
    /// A pool under a name for figures (cut at 32 bytes), with the settings of all pools.
    ///
    /// # Errors
    /// [`PoolError::OutOfMemory`].
    pub fn new(name: &str) -> Result<Self, PoolError> {
        Self::builder(name).build()
    }

    /// Sets out a pool with settings of its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weir::PagePool;
    ///
    /// let pool = PagePool::builder("disk 0").max_idle_pages(64).squeeze(Duration::from_millis(100)).build()?;
    /// assert_eq!(pool.name(), "disk 0");
    /// # Ok::<(), weir::PoolError>(())
    /// ```
    pub fn builder(name: &str) -> PagePoolBuilder<'_> {
        PagePoolBuilder(PoolSpec { name: name.as_bytes(), ..PoolSpec::default() })
    }
}
