//! The table of call stacks: finding a stack's entry, or adding it.
//!
//! There is one writer at a time, who holds the recorder's lock; another process reads meanwhile. An entry's depth is stored
//! last, with release order: who finds it not 0 finds the frames whole, and they never change again.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::layout::{FRAMES, Profile, STACKS, Stack};

/// Entries that are looked at for a stack: a bound to the work of a sample. In a table that is full to three quarters one
/// stack of thousands has none free among so many.
const PROBES: usize = 64;

/// A number of the frames that is not 0.
fn hash(frames: &[usize]) -> u64 {
    // The factor is 2^64 over the golden ratio; the shift brings what it spreads upwards back down.
    let mix = |hash: u64, frame: &usize| {
        let product = (hash ^ *frame as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 29
    };
    frames.iter().fold(frames.len() as u64, mix).max(1)
}

/// The entry of a stack, which is cut to [`FRAMES`]; a stack of no frames has one, which is 0. `None`: there is no place.
pub(super) fn find_or_add<'a>(table: &'a Profile, frames: &[usize]) -> Option<(u32, &'a Stack)> {
    let frames = match frames {
        [] => &[0],
        _ => &frames[..frames.len().min(FRAMES)],
    };
    let hash = hash(frames);
    for probe in 0..PROBES {
        let at = (hash as usize).wrapping_add(probe) % STACKS;
        let entry = &table.stacks[at];
        match entry.hash.load(Relaxed) {
            0 => add(table, entry, hash, frames),
            found if found == hash && is_of(entry, frames) => {}
            _ => continue,
        }
        return Some((at as u32, entry));
    }
    None
}

fn is_of(entry: &Stack, frames: &[usize]) -> bool {
    let has = entry.depth.load(Relaxed) == frames.len() as u64;
    has && entry.frames.iter().zip(frames).all(|(kept, &frame)| kept.load(Relaxed) == frame as u64)
}

fn add(table: &Profile, entry: &Stack, hash: u64, frames: &[usize]) {
    entry.hash.store(hash, Relaxed);
    entry.frames.iter().zip(frames).for_each(|(keep, &frame)| keep.store(frame as u64, Relaxed));
    entry.depth.store(frames.len() as u64, Release);
    table.header.stacks.store(table.header.stacks.load(Relaxed) + 1, Relaxed);
}
