//! Blocks of more than 4 MiB, and blocks that `realloc` has grown past 128 KiB. They are mapped on their own, and
//! retained for a while after they are freed.

mod block;
mod cpu_blocks;
mod habits;
mod lend;
mod lent;
mod looks;
mod map;
pub(crate) mod mapped;
pub(crate) mod reclaimer;
mod resize;
mod retain;
mod table;

pub(crate) use mapped::{FIRST_MAPPED, Mapped, MappedBlocks};
