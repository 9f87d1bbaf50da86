//! Memory for requests' data, and the page pools that it comes from.

mod buffer;
mod pools;

pub use buffer::Buffer;
pub use pools::{PoolFigures, PoolSettings, Pools, use_pool};
