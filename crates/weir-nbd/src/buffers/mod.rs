//! Memory for requests' data, and the page pools that it comes from.

mod buffer;
mod connection_pool;
pub mod locked;
mod pools;

pub use buffer::Buffer;
pub use connection_pool::ConnectionPool;
pub use pools::{PoolFigures, PoolSettings, Pools};
