//! Pools of pages for I/O: a [`PagePool`] for each device or queue.

mod builder;
mod errors;
mod pool;
mod run;
mod shared;

pub use builder::PagePoolBuilder;
pub use errors::PoolError;
pub use pool::PagePool;
pub use run::PoolPages;
pub use weir_core::pools::page_pool::PoolStats;
