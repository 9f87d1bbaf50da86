//! Memory for requests' data, and the page pools that it comes from.

mod buffer;
mod connection_pool;
mod fixed_run;
mod fixed_table;
pub mod locked;
mod pools;
mod sync;

pub use buffer::Buffer;
pub use connection_pool::ConnectionPool;
pub use fixed_run::{FixedRun, Table};
pub use fixed_table::Registered;
pub use pools::{PoolFigures, PoolSettings, Pools};
