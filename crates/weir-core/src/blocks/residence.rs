//! How much of a block is resident, from a few looks at it.

use crate::base::run::Run;
use crate::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use crate::platform::Platform;

/// Pageblocks of a block that are looked at, where it is touched all over or nowhere.
const SAMPLES: usize = 4;
/// Of a touched pageblock's pages, those that must be resident for it to count as filled: seven eighths.
const FILLED: usize = PAGEBLOCK_PAGES / 8 * 7;
/// What a few pageblocks of a block tell of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Bytes resident.
    pub resident: usize,
    /// Some of it was touched, and those pageblocks that were are filled.
    pub filled: bool,
}

/// Looks at a few pageblocks of `block`, each once; `None` where the platform cannot say. What lies between two of them
/// is taken to be as they are. Where one was touched and the other was not, the border is searched for: a buffer that
/// grows is touched up to somewhere.
pub(crate) fn look<P: Platform>(platform: &P, block: Run) -> Option<Look> {
    let pages_at = |i: usize| platform.resident(Run { addr: block.addr + i * PAGEBLOCK, len: PAGEBLOCK });
    // A block may be here for its alignment alone.
    let last = (block.len / PAGEBLOCK).checked_sub(1)?;
    let (mut at, mut pages) = (0, pages_at(0)?);
    let mut before = pages;
    let (mut resident, mut touched, mut filled) = (pages, usize::from(pages > 0), usize::from(pages >= FILLED));
    for sample in 1..SAMPLES {
        let next = last * sample / (SAMPLES - 1);
        if next == at {
            continue;
        }
        let there = pages_at(next)?;
        resident += if (pages > 0) == (there > 0) {
            (next - at - 1) * (pages + there) / 2 + there
        } else {
            let (mut low, mut high) = (at, next);
            while high - low > 1 {
                let middle = low.midpoint(high);
                let is_like_low = (pages_at(middle)? > 0) == (pages > 0);
                *(if is_like_low { &mut low } else { &mut high }) = middle;
            }
            (low - at) * pages + (next - low) * there
        };
        touched += usize::from(there > 0);
        filled += usize::from(there >= FILLED);
        (before, at, pages) = (pages, next, there);
    }
    // What is behind the last whole pageblock is as that one, unless the block was touched up to somewhere inside it.
    let ends_inside = before >= FILLED && pages < FILLED;
    let rest = if ends_inside { 0 } else { block.len % PAGEBLOCK / PAGE * pages / PAGEBLOCK_PAGES };
    Some(Look { resident: (resident + rest) * PAGE, filled: touched > 0 && filled == touched })
}
