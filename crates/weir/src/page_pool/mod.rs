//! Pools of pages for I/O: a [`PagePool`] for each device or queue.
//!
//! Between requests a pool keeps pages, so that the next request finds them resident. It starts from zero and grows on
//! demand. Idle pages go back:
//!
//! | when | idle pages left |
//! |---|---|
//! | the last run in flight was put back | `max_idle_pages` |
//! | 100 ms after the pool came to have more than that, with runs in flight | `max_idle_pages` |
//! | a *squeeze window* is open: for `squeeze_ms` after the last pressure event, each of which extends it | none |
//! | an allocation would fail otherwise, or [`heap::trim`](crate::heap::trim) is called | none |
//!
//! Runs in flight are never touched: only a put makes a run idle.
//!
//! # Settings
//!
//! The values of all pools are set by [`settings`](crate::settings), also while the program runs. The values of one pool are set
//! by [`PagePool::set_max_idle_pages`] and [`PagePool::set_squeeze`].
//!
//! | What | `max_idle_pages` |
//! |---|---|
//! | Since | 0.1.0 |
//! | Contact | the issues of the repository that `Cargo.toml` names |
//! | Description | Pages of 4 KiB that a pool keeps idle for its next requests. What is above goes back when the requests are done, or 100 ms later. 0: each request takes its pages anew |
//! | Range | 0 to 4,294,967,295 |
//! | Default | 1,024 (4 MiB), as of xen-blkback's `max_buffer_pages` |
//!
//! | What | `squeeze_ms` |
//! |---|---|
//! | Since | 0.1.0 |
//! | Contact | the issues of the repository that `Cargo.toml` names |
//! | Description | Milliseconds after a pressure event in which pools keep nothing idle. Longer: less swap, and more pages taken anew. 0: pressure does not squeeze pools |
//! | Range | 0 to 3,600,000 (an hour) |
//! | Default | 10, as of xen-blkback's `buffer_squeeze_duration_ms` |
//!
//! # Whose thread gives pages back
//!
//! By default Weir's own thread, which hears of pressure itself, and the threads that put runs back. A pool made with
//! [`PagePoolBuilder::tended`] has an owner of the program's. An event then frees nothing, but wakes the owner
//! ([`PagePool::wait`], or [`pressure`](crate::pressure) for an event loop). The owner calls [`PagePool::tend`].

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
