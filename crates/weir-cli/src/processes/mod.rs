//! The processes of a program: which there are, whether Weir is in them, what they count, how they end.

pub mod child;
pub mod clock;
pub mod loaded;
pub mod maps;
pub mod program_file;
pub mod reap;
pub mod regular;
pub mod signals;
pub mod stats_file;
pub mod tree;
