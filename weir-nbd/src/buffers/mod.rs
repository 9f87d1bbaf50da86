//! Memory for requests' data, and the page pools that it comes from.

mod buffer;
mod connection_pool;
mod pool_figures;
mod pool_settings;
mod pools;

pub use buffer::Buffer;
pub use connection_pool::ConnectionPool;
pub use pool_figures::PoolFigures;
pub use pool_settings::PoolSettings;
pub use pools::Pools;
