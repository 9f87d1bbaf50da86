//! Which freed blocks are kept, and which of them is handed out again.
//!
//! A freed block is kept for a while, since mapping and touching it anew costs far more than all else. Keeping must
//! cost no peak, and only what is resident counts for that. A buffer that doubles has been touched to its half when the
//! old one is freed, and will be touched further while that is kept. So the peak is that of the bytes in use that were
//! touched, as far as looks tell ([`Blocks::untouched`]). The part of all bytes in use that the program may come to
//! touch ([`Filled`](super::habits::Filled)) counts up to that peak. Together with it, kept blocks exceed the peak by a
//! twelfth at most (`Blocks::room`). Where blocks are replaced all the time ([`Churn`](super::habits::Churn)), a
//! quarter is allowed. Above the last windows' peak nothing is kept when a window ends, and nothing at all under
//! pressure.

use super::block::{Block, Kept};
use super::table::{Blocks, KEPT};
use crate::base::units::{Bytes, Order};
use crate::reclaim::Ended;

/// A kept block is handed out whole where it is longer than wanted by at most this part. So is one that has memory
/// behind it beyond what will be touched by at most this part of that.
const SLACK: usize = 8;
/// Addresses cost nothing: it is then handed out whole up to this multiple of what is wanted.
const SPARE: usize = 2;
/// Kept blocks may raise the peak by this part of it. A buffer that grows by an eighth at a time, the new one beside
/// the old, needs a sixteenth. Then the old one can be kept for the step after.
const RAISE: usize = 12;
/// What may be kept, of what is resident, whatever the peak: blocks of which a page or two was touched. A tenth of what the
/// least of processes has.
const LITTLE: Bytes = Bytes(128 << 10);

/// Whether a block of `have` bytes is handed out whole for `len`; `is_spare`: what it is longer by costs no memory.
pub(super) fn is_near(have: usize, len: usize, is_spare: bool) -> bool {
    have >= len && (have - len <= len / SLACK || is_spare && have / SPARE <= len)
}

impl Blocks {
    /// What is in use and was touched, as far as is known.
    fn touched(&self) -> Bytes {
        self.bytes.saturating_sub(self.untouched)
    }

    /// What is in use and the program has touched, or may touch.
    fn prospective(&self) -> Bytes {
        self.filled.of(self.bytes).max(self.touched())
    }

    /// Kept blocks, resident or not.
    pub(crate) fn retained(&self) -> Bytes {
        self.kept[..self.kept_count].iter().map(|kept| kept.block.bytes()).sum()
    }

    /// Notes that the bytes in use that were touched, and `more` just freed, were resident at once. Where lent blocks may have been
    /// free, they keep the peak that there is, and make no new one.
    pub(crate) fn note(&mut self, more: Bytes) {
        let touched = self.touched() + more;
        let surely = touched.saturating_sub(self.lent);
        self.peak.note(if self.is_settled { touched } else { touched.min(self.peak.high()).max(surely) });
    }

    /// A block of `len` bytes was freed, `resident` of which have memory behind them, and `touched` have had it.
    pub(crate) fn note_freed(&mut self, resident: Bytes, touched: Bytes, len: usize) {
        self.expected.sub(self.filled.of(Bytes(len)).saturating_sub(touched));
        self.filled.observe(touched, len);
        self.churn.free(resident);
        self.note(resident);
    }

    /// What may be kept, of what is resident. The program may touch what it holds. Up to the peak that is no new peak, and
    /// beyond it the program raises the peak by itself.
    fn room(&self) -> Bytes {
        let high = self.peak.high();
        (high + high / self.churn.raise(RAISE) - self.prospective().min(high)).max(LITTLE)
    }

    /// What the last windows' peak wants again, of what is resident.
    pub(crate) fn wanted_again(&self) -> Bytes {
        let high = self.peak.wanted();
        high - self.prospective().min(high)
    }

    /// Ends a window.
    pub(crate) fn roll(&mut self, ended: Ended) {
        let touched = self.touched();
        let high = self.peak.roll(touched, ended.windows, ended.quiet);
        self.churn.roll(high);
    }

    /// Whether there is room to keep a block that has `resident` behind it.
    pub(crate) fn has_room(&self, resident: Bytes) -> bool {
        self.idle + resident <= self.room()
    }

    /// Keeps a freed block if there is room for it; returns one to unmap: the oldest of those kept before, or this one.
    pub(crate) fn keep(&mut self, mut kept: Kept) -> Option<Kept> {
        if !self.has_room(kept.resident) {
            self.churn.drop(kept.resident, self.peak.high());
            if !self.has_room(kept.resident) {
                return Some(kept);
            }
        }
        kept = self.join(kept);
        let dropped = if self.kept_count == KEPT { self.drop_oldest() } else { None };
        self.kept[self.kept_count] = kept;
        self.kept_count += 1;
        self.idle += kept.resident;
        dropped
    }

    /// Joins a freed block to what it was cut off, and to what was cut off it, if those are kept. One of the two may
    /// have moved since, and another block may lie in its place. Then the kernel has two mappings, which `mremap`
    /// refuses to move as one: the platform copies, or the block is not used again.
    fn join(&mut self, mut kept: Kept) -> Kept {
        while let Some(i) = (0..self.kept_count).find(|&i| {
            let other = &self.kept[i].block;
            other.follows(&kept.block) || kept.block.follows(other)
        }) {
            let other = self.take_kept(i);
            let (first, second) =
                if other.block.run.addr < kept.block.run.addr { (other, kept) } else { (kept, other) };
            kept = first;
            kept.block.run.len += second.block.run.len;
            kept.resident += second.resident;
        }
        kept
    }

    /// Takes the kept rest that was cut off `block`, right behind it.
    pub(crate) fn take_rest(&mut self, block: &Block) -> Option<Kept> {
        let i = (0..self.kept_count).find(|&i| self.kept[i].block.follows(block))?;
        Some(self.take_kept(i))
    }

    /// Which kept block is best for `len` bytes, and whether it is handed out whole. One that is, if there is one: that which fits
    /// best what has memory behind it, and of several the youngest. Else the longest that is shorter (to be grown), else the
    /// shortest that is longer (to be cut). Where `is_exact`, addresses without memory are dear too.
    ///
    /// Where `align` is more than a page, only a block that lies so and is handed out whole: others would have to be moved.
    pub(super) fn best(&self, len: usize, align: Order, is_exact: bool) -> Option<(usize, bool)> {
        // What will be touched of it.
        let wanted = self.filled.of(Bytes(len));
        let is_whole = |kept: &Kept| {
            let have = kept.block.run.len;
            is_near(have, len, !is_exact && kept.resident <= wanted + wanted / SLACK)
        };
        let is_eligible = |kept: &Kept| align == Order::PAGE || align.aligns(kept.block.run.addr) && is_whole(kept);
        let fit = |kept: &Kept| match kept.block.run.len {
            _ if is_whole(kept) => (0, kept.resident.0.abs_diff(wanted.0)),
            have if have < len => (1, len - have),
            have => (2, have - len),
        };
        let eligible = (0..self.kept_count).rev().filter(|&i| is_eligible(&self.kept[i]));
        let best = eligible.min_by_key(|&i| fit(&self.kept[i]))?;
        Some((best, is_whole(&self.kept[best])))
    }

    /// The oldest kept block while more than `keep` is resident of those kept; the caller unmaps it. With 0 all go: few
    /// looks may have missed that a block was touched.
    pub(crate) fn drop_above(&mut self, keep: Bytes) -> Option<Kept> {
        if self.idle > keep || keep.is_zero() { self.drop_oldest() } else { None }
    }

    /// Whether more is kept than there is room for.
    pub(crate) fn is_over(&self) -> bool {
        self.idle > self.room()
    }

    /// The oldest kept block while more is kept than there is room for; the caller unmaps it.
    pub(crate) fn drop_over(&mut self) -> Option<Kept> {
        if !self.is_over() {
            return None;
        }
        let dropped = self.drop_oldest()?;
        self.churn.drop(dropped.resident, self.peak.high());
        Some(dropped)
    }

    fn drop_oldest(&mut self) -> Option<Kept> {
        (self.kept_count > 0).then(|| self.take_kept(0))
    }

    pub(super) fn take_kept(&mut self, i: usize) -> Kept {
        let kept = self.kept[i];
        self.kept.copy_within(i + 1..self.kept_count, i);
        self.kept_count -= 1;
        self.idle -= kept.resident;
        kept
    }
}
