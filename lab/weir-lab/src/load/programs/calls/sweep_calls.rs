//! The sweep by instructions: a block of one size is replaced again and again, while the harness counts.
//!
//! `sweep-calls pattern=NAME size=N` warms up, and then replaces blocks among its slots between two stops. The blocks are the
//! same and go in the same order every time. So what is counted is the same too, as far as one thread decides it.

use crate::base::counted::{between_stops, stay_on_this_cpu};
use crate::base::prelude::*;

const SLOTS: usize = 64;
const LIVE_BYTES: usize = 64 << 20;
const WARM_UP: usize = 2_000;
const WARM_UP_BYTES: usize = 4 << 30;
const COUNTED: usize = 64;

/// A pattern: its name, how a block is made, whether that writes all of it, and the most slots.
type Pattern = (&'static str, fn(usize) -> Block, bool, usize);

const PATTERNS: [Pattern; 4] = [
    ("malloc", Block::new, false, SLOTS),
    ("calloc", Block::zeroed, true, SLOTS),
    ("aligned", Block::aligned, false, SLOTS),
    ("doubled", |size| Block::new(size / 2).resized(size), true, 1),
];

pub fn main(words: &Words) -> Result<()> {
    let (pattern, size) = (words.text("pattern")?, words.number("size")? as usize);
    let found = PATTERNS.into_iter().find(|(name, ..)| *name == pattern);
    let (_, make, whole, most) = found.with_context(|| format!("'{pattern}' is no pattern"))?;
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
    let functions = [c"malloc", c"calloc", c"realloc", c"aligned_alloc", c"free", c"memcpy", c"memmove", c"memset"];
    between_stops(&functions, cpu, || (0..COUNTED).for_each(|_| replace()))
}
