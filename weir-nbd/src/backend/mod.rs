//! Where an export's bytes are: a file, a block device or memory, all of them reached through one descriptor.

mod data;
mod extents;
mod flush;
mod open;
mod volume;
mod zeroes;

pub use open::Source;
pub use volume::Volume;
pub use zeroes::CHUNK as ZEROES_CHUNK;
