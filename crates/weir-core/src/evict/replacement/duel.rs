//! The choice of a setting. Two shadows, one per setting, see a sample of the accesses, and the cache runs by the one that hits
//! most.
//!
//! The shadows are compared on the accesses on which they differ. A shadow takes over once it is ahead of the chosen one by four
//! standard deviations of what chance alone would give. If neither setting is better, accesses on which the two differ are as a
//! fair coin. A change costs about a filling of the cache, as what is held was chosen by the former setting. With three
//! deviations the choice swings on some traces, and the worst row of the hit rate experiment loses five points more. Older
//! evidence fades, so a trace that changes changes the choice.

use super::favour::Favour;
use super::setting::Setting;
use super::shadow::{SHADOW_ENTRIES, Shadow, ShadowStorage};
use super::sketch::Sketch;
use core::sync::atomic::AtomicU64;

/// The shadows.
const SHADOWS: usize = Setting::ALL.len();
/// Standard deviations by which a shadow must lead, squared.
const LEAD_SQUARED: i64 = 16;
/// Evidence fades each time the shadows have seen this many accesses per entry: a few fillings of the cache.
const FADE_AFTER: usize = 4;
/// The shadows are compared this many times per filling of the cache.
const LOOKS_PER_FILLING: usize = 8;
/// The fewest accesses between two looks.
const FEWEST: usize = 16;
/// The highest sampling rate: the sample is chosen by 32 bits of hash.
const MOST_SHIFT: u32 = 31;
/// Evidence is in units of 1/256 access, so that fading loses little.
const UNIT: i64 = 256;

/// The memory of a duel: about 33 KiB. All zeros is empty.
#[derive(Debug)]
pub struct DuelStorage {
    shadows: [ShadowStorage; SHADOWS],
    sketch: [AtomicU64; 2 * SHADOW_ENTRIES],
}

impl DuelStorage {
    /// Empty.
    pub const fn empty() -> Self {
        Self {
            shadows: [const { ShadowStorage::empty() }; SHADOWS],
            sketch: [const { AtomicU64::new(0) }; 2 * SHADOW_ENTRIES],
        }
    }
}

/// The cache's size, as the sampling rate and the shadows' size follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The number of entries.
    pub entries: usize,
    /// Their weight, bytes.
    pub weight: usize,
    /// The cache's target, bytes.
    pub target: usize,
}

impl Held {
    /// The entries that the target has room for, at the mean weight of those held.
    fn capacity(&self) -> usize {
        let capacity = self.target as u128 * self.entries as u128 / self.weight.max(1) as u128;
        usize::try_from(capacity).unwrap_or(usize::MAX)
    }
}

/// A shadow's hits less the chosen one's, and the accesses on which the two differed.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    lead: i64,
    differed: i64,
}

/// A shadow for each setting, one of which is ahead.
#[derive(Debug)]
pub struct Duel<'a> {
    shadows: [Shadow<'a>; SHADOWS],
    sketch: Sketch<'a>,
    scores: [Score; SHADOWS],
    chosen: usize,
    /// The binary logarithm of how many keys there are for each that is sampled.
    shift: u32,
    since_look: usize,
    since_fading: usize,
}

impl<'a> Duel<'a> {
    /// A duel that begins with [`Setting::Balanced`] and samples every key until the cache has more than a shadow.
    pub fn new(storage: &'a mut DuelStorage, favour: Favour) -> Self {
        let DuelStorage { shadows, sketch } = storage;
        let mut settings = Setting::ALL.into_iter();
        let shadows = shadows
            .each_mut()
            .map(|storage| Shadow::new(storage, settings.next().unwrap_or(Setting::Balanced), favour));
        let scores = [Score::default(); SHADOWS];
        Self { shadows, sketch: Sketch::new(sketch), scores, chosen: 0, shift: 0, since_look: 0, since_fading: 0 }
    }

    /// The setting that the cache should run by.
    pub const fn setting(&self) -> Setting {
        Setting::ALL[self.chosen]
    }

    /// One key in 2^this is sampled. A caller may read it without the duel's lock, for [`is_sampled`].
    pub const fn shift(&self) -> u32 {
        self.shift
    }

    /// Sees an access, a hit or a miss, to the key of `hash`, of which every bit depends on the whole key. Other keys than those
    /// sampled are ignored. True if the setting changed.
    pub fn access(&mut self, hash: u32, weight: usize, held: Held) -> bool {
        if !is_sampled(hash, self.shift) {
            return false;
        }
        if self.since_look == 0 {
            self.fit(held);
        }
        self.sketch.fit(self.shadows[0].entries());
        self.sketch.count(hash);
        let mut hits = [false; SHADOWS];
        for (hit, shadow) in hits.iter_mut().zip(&mut self.shadows) {
            *hit = shadow.access(hash, weight, &self.sketch);
        }
        for (score, hit) in self.scores.iter_mut().zip(hits) {
            let ahead = i64::from(hit) - i64::from(hits[self.chosen]);
            score.lead += ahead * UNIT;
            score.differed += ahead.abs() * UNIT;
        }
        self.judge()
    }

    /// Compares the shadows, if it is time.
    fn judge(&mut self) -> bool {
        let entries = self.shadows[0].entries();
        self.since_look += 1;
        self.since_fading += 1;
        let mut has_changed = false;
        if self.since_look >= (entries / LOOKS_PER_FILLING).max(FEWEST) {
            self.since_look = 0;
            let (best, score) =
                (0..SHADOWS).map(|at| (at, self.scores[at])).max_by_key(|(_, s)| s.lead).unwrap_or_default();
            let lead = score.lead - UNIT;
            // lead > z * sqrt(differed), both in accesses.
            if lead > 0 && lead * lead > LEAD_SQUARED * score.differed * UNIT {
                self.chosen = best;
                self.scores = [Score::default(); SHADOWS];
                has_changed = true;
            }
        }
        if self.since_fading >= (entries * FADE_AFTER).max(4 * FEWEST) {
            self.since_fading = 0;
            for score in &mut self.scores {
                // 0.7 of it is left.
                *score = Score { lead: score.lead * 7 / 10, differed: score.differed * 7 / 10 };
            }
        }
        has_changed
    }

    /// Follows the cache's size: the shadows have between 3/8 of their slots and all of them filled.
    fn fit(&mut self, held: Held) {
        let capacity = held.capacity();
        let mut shift = self.shift;
        while shift < MOST_SHIFT && capacity >> shift > SHADOW_ENTRIES {
            shift += 1;
        }
        while shift > 0 && capacity >> shift < SHADOW_ENTRIES * 3 / 8 {
            shift -= 1;
        }
        if shift > self.shift {
            for shadow in &mut self.shadows {
                shadow.retain(|hash| is_sampled(hash, shift));
            }
        }
        self.shift = shift;
        for shadow in &mut self.shadows {
            shadow.set_target(held.target >> shift);
        }
    }
}

/// True if a duel sees the key of `hash` when one key in 2^`shift` is sampled.
#[inline]
pub const fn is_sampled(hash: u32, shift: u32) -> bool {
    // The high bits; the low ones choose places in tables.
    shift == 0 || hash.leading_zeros() >= shift
}
