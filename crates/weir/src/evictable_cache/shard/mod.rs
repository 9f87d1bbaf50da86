//! A shard: its state behind one lock, the storage of what it says of its entries, look-ups and walks.

pub mod lookup;
pub mod sizing;
pub mod state;
pub mod storage;
pub mod walk;
