//! The sweep by instructions: a block of one size is replaced again and again, while the harness counts.
//!
//! `sweep-calls PATTERN SIZE` warms up, and then replaces blocks among its slots between two stops. The blocks are the
//! same and go in the same order every time, so what is counted is the same too, as far as one thread decides it.

use crate::base::counted::{between_stops, stay_on_this_cpu};
use crate::base::mem::{Block, Random};

/// Live blocks at most, as far as [`LIVE_BYTES`] allows.
const SLOTS: usize = 64;
/// Bytes of all live blocks at most: 16 of the smallest that are mapped on their own, each some ten thousand instructions where
/// its pages are looked at.
const LIVE_BYTES: usize = 64 << 20;
/// Replacements before counting begins. Retained blocks need some hundreds until it is known how they are used.
const WARM_UP: usize = 2_000;
/// Of patterns that copy or clear, so many bytes at most before counting begins: a second's work.
const WARM_UP_BYTES: usize = 4 << 30;
/// Replacements that are counted at most.
const COUNTED: usize = 64;

/// How a block is made of a size.
type Make = fn(usize) -> Block;

/// The patterns: how a block is made, whether that works on all of it, and how many are live at most. Of blocks that grow
/// where they can, one alone: beside others it would be chance whether there is room behind it.
const PATTERNS: [(&str, Make, bool, usize); 4] = [
    ("malloc", Block::new, false, SLOTS),
    ("calloc", Block::zeroed, true, SLOTS),
    ("aligned", Block::aligned, false, SLOTS),
    ("doubled", |size| Block::new(size / 2).resized(size), true, 1),
];

/// Replaces blocks.
pub fn main(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (pattern, size) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let size: usize = size.parse().map_err(|_| format!("'{size}' is not a size"))?;
    let (_, make, whole, most) = PATTERNS
        .into_iter()
        .find(|(name, ..)| *name == pattern)
        .ok_or_else(|| format!("'{pattern}' is no pattern: there are malloc, calloc, aligned, doubled"))?;
    let mut slots = vec![Block::NONE; (LIVE_BYTES / size.max(1)).clamp(1, most)];
    let mut random = Random::new(7, 0);
    let mut replace = || {
        let chosen = random.below(slots.len());
        let slot = &mut slots[chosen];
        slot.free();
        *slot = make(size);
    };
    let cpu = stay_on_this_cpu();
    let warm_up = if whole { (WARM_UP_BYTES / size).clamp(4 * SLOTS, WARM_UP) } else { WARM_UP };
    (0..warm_up).for_each(|_| replace());
    between_stops(
        &[c"malloc", c"calloc", c"realloc", c"aligned_alloc", c"free", c"memcpy", c"memmove", c"memset"],
        cpu,
        || (0..COUNTED).for_each(|_| replace()),
    )
}
