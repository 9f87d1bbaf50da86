//! Blocks of more than 4 MiB, and what `realloc` has grown past 128 KiB: mapped on their own, and retained for a while after
//! they are freed.

mod block;
mod churn;
mod constancy;
mod expected;
mod filled;
mod free;
mod looks;
mod map;
pub(crate) mod mapped;
mod reclaimer;
mod residence;
mod resize;
mod retain;
mod table;
mod untouched;
pub(crate) mod usage;
mod watch;

pub(crate) use mapped::{FIRST_MAPPED, Mapped, MappedBlocks};
