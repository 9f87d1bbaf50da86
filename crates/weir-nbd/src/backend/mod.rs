//! Where an export's bytes are: a file, a block device or memory, all of them reached through one descriptor.

mod cached;
mod data_map;
mod extents;
mod flush;
mod medium;
mod open;
#[cfg(test)]
pub mod testing;
mod volume;
mod volume_lock;
mod zeroes;

pub use cached::READ_AHEAD;
pub use flush::Flusher;
pub use open::Source;
pub use volume::Volume;
pub use zeroes::CHUNK as ZEROES_CHUNK;
