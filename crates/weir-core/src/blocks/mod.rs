//! Blocks of more than 4 MiB, and what `realloc` has grown past 128 KiB: mapped on their own, and retained for a while after
//! they are freed.

mod block;
mod habits;
mod looks;
mod map;
pub(crate) mod mapped;
pub(crate) mod reclaimer;
mod resize;
mod retain;
mod table;

pub(crate) use mapped::{FIRST_MAPPED, Mapped, MappedBlocks};
