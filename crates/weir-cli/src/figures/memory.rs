//! The parts of a process's resident set: the one place that divides it.

use crate::base::units::{bytes, nanoseconds};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Stats;

/// How old a measurement may be that does not fit the resident set any more, ns: it was made a little before.
const FRESH_NS: u64 = 1_000_000_000;
/// Bytes by which what cannot be released may exceed the resident set, and as a share of it, 1 / SLACK_SHARE. Where it is more,
/// it was measured of another resident set.
const SLACK: u64 = 1 << 20;
const SLACK_SHARE: u64 = 16;

/// Bytes by which a heap may have handed out more than was measured, and as a share of the resident set, 1 / GROWTH_SHARE. Parts
/// of slabs that are free and not resident are in no measurement.
const GROWTH: u64 = 8 << 20;
const GROWTH_SHARE: u64 = 8;

/// The names of [`Memory::parts`].
pub const PARTS: [&str; 6] = ["live", "idle", "fragmented", "merged", "metadata", "not Weir's"];

/// Parts that add up to the resident set, bytes. They are unknown, all of them, where what was measured is of a resident set
/// that is no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The resident set.
    pub resident_bytes: u64,
    /// The resident part of what the program holds.
    pub live_bytes: Option<u64>,
    /// Free, and can be released.
    pub idle_bytes: Option<u64>,
    /// Free, beside objects in use on the same pages.
    pub fragmented_bytes: Option<u64>,
    /// Resident, and charged to nobody: the kernel merged these pages with others. None in what older versions wrote.
    #[serde(default)]
    pub merged_bytes: Option<u64>,
    /// Weir's own.
    pub metadata_bytes: Option<u64>,
    /// Code and data, stacks, mappings of the program's own, zones of the program's own.
    pub not_weirs_bytes: Option<u64>,
    /// Not resident: what the program holds and never touched, or what was swapped out.
    pub untouched_bytes: Option<u64>,
    /// How long ago Weir measured its part, ns; none: never. Then a heap of at most 1 MiB counts as not Weir's.
    pub measured_ns_ago: Option<u64>,
}

/// Weir's measurement of its own memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub live: u64,
    pub idle: u64,
    pub fragmented: u64,
    pub merged: u64,
    pub metadata: u64,
    pub untouched: u64,
}

impl Measured {
    /// By a page, and when, ns of the monotonic clock; none: never yet.
    pub fn of(page: &Stats) -> Option<(Self, u64)> {
        let it = &page.measured;
        let all = [&it.live, &it.idle, &it.fragmented, &it.merged, &it.metadata, &it.untouched];
        let [live, idle, fragmented, merged, metadata, untouched] = all.map(|figure| figure.load(Relaxed));
        let at = it.at.load(Relaxed);
        (at > 0).then_some((Self { live, idle, fragmented, merged, metadata, untouched }, at))
    }

    /// Resident bytes of Weir's.
    pub fn resident(&self) -> u64 {
        let all = [self.live, self.idle, self.fragmented, self.merged, self.metadata];
        all.into_iter().fold(0, u64::saturating_add).saturating_sub(self.untouched)
    }

    /// As parts of `found` bytes, which are resident now: live, idle, fragmented, merged, metadata, and what no figure explains.
    /// Where the figures exceed what was found, it was memory that can go which went since: what is idle first.
    pub fn divide(&self, found: u64) -> [u64; 6] {
        // Objects in buckets and depots are idle. Some of them, too, may never have been touched.
        let (live, more) = (self.live.saturating_sub(self.untouched), self.untouched.saturating_sub(self.live));
        let mut left = found;
        let mut take = |part: u64| {
            let taken = part.min(left);
            left -= taken;
            taken
        };
        let all = [live, self.metadata, self.fragmented, self.merged];
        let [live, metadata, fragmented, merged] = all.map(&mut take);
        let idle = take(self.idle.saturating_sub(more));
        [live, idle, fragmented, merged, metadata, left]
    }

    /// Whether it is of another resident set than this.
    fn is_beyond(&self, resident: u64) -> bool {
        let beside = self.fragmented.saturating_add(self.merged);
        let stays = self.live.saturating_sub(self.untouched).saturating_add(self.metadata).saturating_add(beside);
        stays.saturating_sub(resident) > SLACK.max(resident / SLACK_SHARE)
    }
}

impl Measured {
    /// Whether a heap that has handed out so many bytes has grown since, and the resident set with it.
    fn is_outgrown(&self, held: u64, resident: u64) -> bool {
        let known = [self.live, self.idle, self.fragmented, self.merged].into_iter().fold(0, u64::saturating_add);
        let grown = held.saturating_sub(known);
        // Memory that was never touched has not come to the resident set.
        grown > GROWTH.max(resident / GROWTH_SHARE) && resident.saturating_sub(self.resident()) >= grown / 2
    }
}

/// Bytes of pages and of blocks that a heap has handed out.
fn held(page: &Stats) -> u64 {
    page.page_bytes.load(Relaxed).saturating_add(page.mapped_bytes.load(Relaxed))
}

impl Memory {
    /// The parts of a process with so many resident bytes, by its page.
    pub fn of(page: &Stats, resident_bytes: u64, now_ns: u64) -> Self {
        match Measured::of(page) {
            Some((measured, at)) => {
                let ago = now_ns.saturating_sub(at);
                // At rest, and where nothing is released, no thread measures while it grows.
                if ago > FRESH_NS && measured.is_outgrown(held(page), resident_bytes) {
                    return Self { resident_bytes, measured_ns_ago: Some(ago), ..Self::default() };
                }
                Self::part(resident_bytes, measured, Some(ago))
            }
            // So little that it is left out; or a heap that no thread has looked at, as in a forked child.
            None if held(page) <= SLACK => Self::part(resident_bytes, Measured::default(), None),
            None => Self { resident_bytes, ..Self::default() },
        }
    }

    fn part(resident_bytes: u64, measured: Measured, measured_ns_ago: Option<u64>) -> Self {
        let unknown = Self { resident_bytes, measured_ns_ago, ..Self::default() };
        if measured.is_beyond(resident_bytes) && measured_ns_ago.is_some_and(|ago| ago > FRESH_NS) {
            return unknown;
        }
        Self { untouched_bytes: Some(measured.untouched), ..unknown.with_parts(measured.divide(resident_bytes)) }
    }

    /// With these parts, in the order of `PARTS`.
    pub fn with_parts(self, parts: [u64; 6]) -> Self {
        let [live_bytes, idle_bytes, fragmented_bytes, merged_bytes, metadata_bytes, not_weirs_bytes] = parts.map(Some);
        Self { live_bytes, idle_bytes, fragmented_bytes, merged_bytes, metadata_bytes, not_weirs_bytes, ..self }
    }

    /// The parts, as far as they are known: all or none.
    pub fn parts(&self) -> Option<[u64; 6]> {
        let Self { live_bytes, idle_bytes, fragmented_bytes, metadata_bytes, not_weirs_bytes, .. } = *self;
        let merged_bytes = self.merged_bytes.unwrap_or(0);
        Some([live_bytes?, idle_bytes?, fragmented_bytes?, merged_bytes, metadata_bytes?, not_weirs_bytes?])
    }

    /// The sum of two processes; parts that are unknown are left out.
    pub fn and(&self, other: &Self) -> Self {
        let [one, two] = [self, other].map(|it| it.parts().unwrap_or_default());
        let resident_bytes = self.resident_bytes.saturating_add(other.resident_bytes);
        Self { resident_bytes, ..Self::default() }.with_parts(std::array::from_fn(|i| one[i].saturating_add(two[i])))
    }
}

/// A table of the parts, with their shares.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resident = bytes(self.resident_bytes);
        let Some(parts) = self.parts() else {
            let why = match self.measured_ns_ago {
                Some(ago) => format!("it was measured {} ago, and has changed since", nanoseconds(ago)),
                None => "it was not measured yet (`weir why` measures where there is a background thread)".to_owned(),
            };
            return writeln!(f, "  resident {resident}; what it consists of is unknown: {why}");
        };
        let words = [
            "in use by the program",
            "free, can be released",
            "free, beside objects in use on the same pages",
            "as fragmented; not charged, as the kernel merged these pages",
            "Weir's own",
            "code, data, stacks, mappings of the program's own",
        ];
        let each = PARTS.iter().zip(parts).zip(words);
        // Nearly no process has any.
        for ((name, part), what) in each.filter(|((name, part), _)| **name != "merged" || *part > 0) {
            let percent = part as f64 * 100.0 / self.resident_bytes.max(1) as f64;
            writeln!(f, "  {name:<12} {:>12} {percent:>6.1} %  {what}", bytes(part))?;
        }
        writeln!(f, "  {:<12} {resident:>12} {:>6.1} %", "resident", 100.0)?;
        match self.untouched_bytes.unwrap_or(0) {
            0 => Ok(()),
            size => {
                writeln!(f, "  and {} in use by the program that it never touched, or that is swapped out", bytes(size))
            }
        }
    }
}

/// Where the memory of Weir's heaps is by the counters of pages, in the words of `weir.h`. The figures of several processes are
/// each as of the end of that process's last calm window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heap {
    /// Blocks and objects that the programs hold, touched or not.
    pub live_bytes: u64,
    /// Free and resident, and can be released.
    pub idle_bytes: u64,
    /// Free and resident, in slabs that have objects in use.
    pub fragmented_bytes: u64,
    /// As fragmented, and without memory of its own.
    #[serde(default)]
    pub merged_bytes: u64,
    /// Weir's own, resident.
    pub metadata_bytes: u64,
}

impl Heap {
    /// The sum of all pages. None: more than a little of it was handed out by heaps that never told where it is. Without a
    /// measurement a window's end tells it too, if it was not long before: when at least half of what is held now was there.
    pub fn of<'a>(pages: impl Iterator<Item = &'a Stats>) -> Option<Self> {
        let mut untold = 0u64;
        let sum = pages.fold(Self::default(), |sum, page| {
            let all = [&page.live_bytes, &page.idle_bytes, &page.fragmented_bytes, &page.merged_bytes];
            let [live, idle, fragmented, merged] = all.map(|figure| figure.load(Relaxed));
            let known = [live, idle, fragmented, merged].into_iter().fold(0, u64::saturating_add);
            let is_told = Measured::of(page).is_some() || held(page) <= SLACK.max(known.saturating_mul(2));
            untold = untold.saturating_add(if is_told { 0 } else { held(page).saturating_sub(known) });
            Self {
                live_bytes: sum.live_bytes.saturating_add(live),
                idle_bytes: sum.idle_bytes.saturating_add(idle),
                fragmented_bytes: sum.fragmented_bytes.saturating_add(fragmented),
                merged_bytes: sum.merged_bytes.saturating_add(merged),
                metadata_bytes: sum.metadata_bytes.saturating_add(page.metadata_bytes.load(Relaxed)),
            }
        });
        let all = sum.parts().into_iter().fold(0, u64::saturating_add);
        (untold <= SLACK.max(all / SLACK_SHARE)).then_some(sum)
    }

    /// In the order of [`PARTS`].
    fn parts(&self) -> [u64; 5] {
        [self.live_bytes, self.idle_bytes, self.fragmented_bytes, self.merged_bytes, self.metadata_bytes]
    }

    /// As parts of a resident set, if they fit into it: else what was said is of another.
    pub fn within(&self, resident_bytes: u64) -> Memory {
        let parts = self.parts();
        let rest = resident_bytes.checked_sub(parts.into_iter().fold(0, u64::saturating_add));
        let memory = Memory { resident_bytes, ..Memory::default() };
        let [live, idle, fragmented, merged, metadata] = parts;
        rest.map_or(memory, |rest| memory.with_parts([live, idle, fragmented, merged, metadata, rest]))
    }
}

impl fmt::Display for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = PARTS.iter().zip(self.parts()).filter(|(name, part)| **name != "merged" || *part > 0);
        let each = all.map(|(name, size)| format!("{name} {}", bytes(size)));
        f.write_str(&each.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured([live, idle, fragmented, metadata, untouched]: [u64; 5]) -> Measured {
        Measured { live, idle, fragmented, merged: 0, metadata, untouched }
    }

    #[test]
    fn the_parts_add_up_to_the_resident_set_whatever_was_measured() {
        for figures in [
            [50, 20, 5, 3, 8],
            [500, 20, 5, 3, 8],
            [0, 0, 0, 0, 0],
            [10, 80, 0, 0, 30],
            [5, 900, 9, 9, 0],
            [u64::MAX; 5],
        ] {
            let it = Memory::part(100, measured(figures), Some(1));
            assert_eq!(it.parts().unwrap().iter().sum::<u64>(), 100, "{it:?}");
        }
        let it = Memory::part(100, measured([50, 20, 5, 3, 8]), None);
        assert_eq!(it.parts(), Some([42, 20, 5, 0, 3, 30]));
        // 80 idle bytes were released since they were measured, of which 20 are missing in the resident set.
        assert_eq!(Memory::part(100, measured([40, 80, 0, 0, 0]), None).idle_bytes, Some(60));
        assert!(it.to_string().lines().count() >= 6 && !it.to_string().contains("merged"));
        let merged = Memory::part(100, Measured { merged: 7, ..measured([50, 20, 5, 3, 8]) }, None);
        assert_eq!(merged.parts(), Some([42, 20, 5, 7, 3, 23]));
        assert!(merged.to_string().contains("merged"));
        assert_eq!(it.and(&it).parts(), Some([84, 40, 10, 0, 6, 60]));
    }

    #[test]
    fn a_heap_that_was_never_measured_is_unknown_unless_it_is_small() {
        let page = Stats::new();
        page.page_bytes.store(200 << 10, Relaxed);
        assert_eq!(Memory::of(&page, 9 << 20, 1).parts(), Some([0, 0, 0, 0, 0, 9 << 20]));
        page.mapped_bytes.store(8 << 20, Relaxed);
        let unknown = Memory::of(&page, 9 << 20, 1);
        assert_eq!((unknown.parts(), unknown.measured_ns_ago, unknown.resident_bytes), (None, None, 9 << 20));
        assert!(unknown.to_string().contains("is unknown: it was not measured yet"), "{unknown}");
    }

    #[test]
    fn the_sum_of_heaps_is_unknown_where_one_was_never_told_of() {
        let [small, told, untold] = [0; 3].map(|_| Stats::new());
        small.page_bytes.store(200 << 10, Relaxed);
        told.page_bytes.store(8 << 20, Relaxed);
        told.live_bytes.store(6 << 20, Relaxed);
        untold.page_bytes.store(8 << 20, Relaxed);
        let sum = Heap::of([&small, &told].into_iter());
        assert_eq!(sum, Some(Heap { live_bytes: 6 << 20, ..Heap::default() }));
        assert_eq!(Heap::of([&told, &untold].into_iter()), None);
        let large = Stats::new();
        large.live_bytes.store(1 << 30, Relaxed);
        let sum = Heap::of([&large, &untold].into_iter());
        assert_eq!(sum.map(|heap| heap.live_bytes), Some(1 << 30), "of a large heap it is a small part");
        untold.live_bytes.store(4 << 10, Relaxed);
        assert_eq!(Heap::of([&untold].into_iter()), None, "told when it had just begun");
        untold.measured.at.store(1, Relaxed);
        assert_eq!(Heap::of([&untold].into_iter()).map(|heap| heap.live_bytes), Some(4 << 10));
        assert_eq!(Heap::of(std::iter::empty()), Some(Heap::default()));
    }

    #[test]
    fn a_heap_that_grew_since_it_was_measured_is_unknown() {
        let page = Stats::new();
        page.measured.at.store(1, Relaxed);
        page.measured.live.store(30 << 20, Relaxed);
        let of = |page: &Stats, resident: u64, now| Memory::of(page, resident, now).parts().is_some();
        page.page_bytes.store(600 << 20, Relaxed);
        assert!(!of(&page, 610 << 20, 5_000_000_000) && of(&page, 610 << 20, 1000));
        assert!(of(&page, 40 << 20, 5_000_000_000), "what it took is not touched");
        // Slabs with free parts that are not resident, beside 9 MiB of the program's own.
        page.page_bytes.store(36 << 20, Relaxed);
        assert!(of(&page, 39 << 20, 5_000_000_000));
    }

    #[test]
    fn an_old_measurement_of_another_resident_set_is_not_shown() {
        let of = |live: u64, ago| Memory::part(9 << 20, measured([live, 0, 0, 0, 0]), Some(ago));
        let old = of(60 << 20, 5_000_000_000);
        let shown = old.to_string();
        assert!(shown.contains("9.0 MiB; what it consists of is unknown: it was measured 5.00 s ago"), "{shown}");
        let told = serde_json::to_value(old).unwrap();
        assert!(told["live_bytes"].is_null() && told["resident_bytes"] == 9 << 20, "{told}");
        assert!(of(60 << 20, 1000).parts().is_some() && of(9 << 20, 5_000_000_000).parts().is_some());
        // What is idle may have been released since.
        let idle = measured([1 << 20, 60 << 20, 0, 0, 0]);
        assert!(Memory::part(9 << 20, idle, Some(5_000_000_000)).parts().is_some());
    }
}
