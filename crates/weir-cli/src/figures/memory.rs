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
    /// The resident set of the whole process then; 0: it is not known.
    pub process: u64,
}

impl Measured {
    /// By a page, and when, ns of the monotonic clock; none: never yet.
    pub fn of(page: &Stats) -> Option<(Self, u64)> {
        let ([live, idle, fragmented, merged, metadata, untouched, process], at) = page.measured.found()?;
        Some((Self { live, idle, fragmented, merged, metadata, untouched, process }, at))
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
        !is_little(stays.saturating_sub(resident), resident)
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

    /// Whether the resident set has grown since, and by more than a little of it what was not resident may have been touched.
    fn is_touched(&self, resident: u64) -> bool {
        let grown = resident.saturating_sub(self.process.max(self.resident()));
        grown.min(self.untouched) > GROWTH.max(resident / GROWTH_SHARE)
    }
}

/// Whether so much may be left out of `all` bytes.
pub fn is_little(bytes: u64, all: u64) -> bool {
    bytes <= SLACK.max(all / SLACK_SHARE)
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
                // At rest, and where nothing is released, no thread measures while it grows, or the program fills what it has.
                let has_changed =
                    || measured.is_outgrown(held(page), resident_bytes) || measured.is_touched(resident_bytes);
                if ago > FRESH_NS && has_changed() {
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

    /// The sum of some processes. Those of which the parts are unknown count as not Weir's if they are a small part of it; else the
    /// parts of the sum are unknown.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let (mut resident_bytes, mut unknown, mut sum) = (0u64, 0u64, [0u64; 6]);
        for it in all {
            resident_bytes = resident_bytes.saturating_add(it.resident_bytes);
            let parts = it.parts().unwrap_or_else(|| {
                unknown = unknown.saturating_add(it.resident_bytes);
                [0, 0, 0, 0, 0, it.resident_bytes]
            });
            sum = std::array::from_fn(|i| sum[i].saturating_add(parts[i]));
        }
        let it = Self { resident_bytes, ..Self::default() };
        if is_little(unknown, resident_bytes) { it.with_parts(sum) } else { it }
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

/// A process's part of its resident anonymous memory, in which pages that several processes have count by their number, and the
/// others' part; bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    pub own: u64,
    pub others: u64,
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
    /// The sum of all pages, each of a process with a share. None: more than a little of it was handed out by heaps that
    /// never told where it is. Without a measurement a window's end tells it too, if it was not long before: when at
    /// least half of what is held now was there.
    pub fn of<'a>(pages: impl Iterator<Item = (&'a Stats, Share)>) -> Option<Self> {
        let mut untold = 0u64;
        let sum = pages.fold(Self::default(), |sum, (page, share)| {
            let all = [&page.live_bytes, &page.idle_bytes, &page.fragmented_bytes, &page.merged_bytes];
            let [live_bytes, idle_bytes, fragmented_bytes, merged_bytes] = all.map(|figure| figure.load(Relaxed));
            let metadata_bytes = page.metadata_bytes.load(Relaxed);
            let it = Self { live_bytes, idle_bytes, fragmented_bytes, merged_bytes, metadata_bytes };
            let known = it.bytes().saturating_sub(metadata_bytes);
            let is_told = page.measured.at.load(Relaxed) > 0 || held(page) <= SLACK.max(known.saturating_mul(2));
            untold = untold.saturating_add(if is_told { 0 } else { held(page).saturating_sub(known) });
            let is_so = |it: &Measured| !it.is_touched(share.own.saturating_add(share.others));
            let untouched = Measured::of(page).filter(|(it, _)| is_so(it)).map_or(0, |(it, _)| it.untouched);
            sum.and(&it.own_part(share, untouched))
        });
        is_little(untold, sum.bytes()).then_some(sum)
    }

    fn with(parts: [u64; 5]) -> Self {
        let [live_bytes, idle_bytes, fragmented_bytes, merged_bytes, metadata_bytes] = parts;
        Self { live_bytes, idle_bytes, fragmented_bytes, merged_bytes, metadata_bytes }
    }

    fn and(&self, other: &Self) -> Self {
        let (one, two) = (self.parts(), other.parts());
        Self::with(std::array::from_fn(|i| one[i].saturating_add(two[i])))
    }

    /// All parts together.
    fn bytes(&self) -> u64 {
        self.parts().into_iter().fold(0, u64::saturating_add)
    }

    /// Without what is others' of it: forked processes have their parent's heap, and each tells of all of it. Bytes that are not
    /// resident (`untouched`) are in no share.
    fn own_part(&self, share: Share, untouched: u64) -> Self {
        let all = self.bytes();
        let others = all.saturating_sub(untouched).saturating_sub(share.own).min(share.others);
        let part = |bytes: u64| u128::from(bytes) * u128::from(all - others) / u128::from(all.max(1));
        Self::with(self.parts().map(|bytes| part(bytes) as u64))
    }

    /// In the order of [`PARTS`].
    fn parts(&self) -> [u64; 5] {
        [self.live_bytes, self.idle_bytes, self.fragmented_bytes, self.merged_bytes, self.metadata_bytes]
    }

    /// As parts of a resident set, if they fit into it: else what was said is of another.
    pub fn within(&self, resident_bytes: u64) -> Memory {
        let parts = self.parts();
        let rest = resident_bytes.checked_sub(self.bytes());
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
        Measured { live, idle, fragmented, merged: 0, metadata, untouched, process: 0 }
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
        assert_eq!(Memory::sum([it, it].iter()).parts(), Some([84, 40, 10, 0, 6, 60]));
    }

    #[test]
    fn a_sum_is_unknown_where_more_than_a_little_of_it_is() {
        let of = |resident: u64, parts: Option<[u64; 6]>| {
            let it = Memory { resident_bytes: resident << 20, ..Memory::default() };
            parts.map_or(it, |parts| it.with_parts(parts.map(|part| part << 20)))
        };
        let known = of(100, Some([60, 20, 5, 0, 5, 10]));
        assert_eq!(Memory::sum([known, of(20, None)].iter()), of(120, None));
        assert_eq!(Memory::sum([known, of(2, None)].iter()), of(102, Some([60, 20, 5, 0, 5, 12])));
        assert_eq!(Memory::sum(std::iter::empty()).parts(), Some([0; 6]));
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
        let of = |pages: &[&Stats]| Heap::of(pages.iter().map(|page| (*page, Share::default())));
        let sum = of(&[&small, &told]);
        assert_eq!(sum, Some(Heap { live_bytes: 6 << 20, ..Heap::default() }));
        assert_eq!(of(&[&told, &untold]), None);
        let large = Stats::new();
        large.live_bytes.store(1 << 30, Relaxed);
        let sum = of(&[&large, &untold]);
        assert_eq!(sum.map(|heap| heap.live_bytes), Some(1 << 30), "of a large heap it is a small part");
        untold.live_bytes.store(4 << 10, Relaxed);
        assert_eq!(of(&[&untold]), None, "told when it had just begun");
        untold.measured.note(1, [0; 7]);
        assert_eq!(of(&[&untold]).map(|heap| heap.live_bytes), Some(4 << 10));
        assert_eq!(of(&[]), Some(Heap::default()));
    }

    #[test]
    fn what_forked_processes_share_counts_once() {
        let pages = [0; 9].map(|_| Stats::new());
        for page in &pages {
            page.live_bytes.store(900 << 20, Relaxed);
            page.metadata_bytes.store(18 << 20, Relaxed);
            page.measured.note(1, [0; 7]);
        }
        let share = Share { own: 102 << 20, others: 816 << 20 };
        let sum = Heap::of(pages.iter().map(|page| (page, share))).unwrap();
        assert_eq!((sum.live_bytes >> 20, sum.metadata_bytes >> 20), (900, 18));
        // Memory that is not resident is no part of what is shared.
        let little = Share { own: 20 << 20, others: 3 << 20 };
        assert!((914..=915).contains(&(Heap::of([(&pages[0], little)].into_iter()).unwrap().bytes() >> 20)));
        let small = Share { own: 1 << 30, others: 3 << 20 };
        assert_eq!(Heap::of([(&pages[0], small)].into_iter()).unwrap().bytes() >> 20, 918);
    }

    /// Beside other memory, which a forked child has too.
    #[test]
    fn what_is_not_resident_is_not_others() {
        let page = Stats::new();
        page.live_bytes.store(2 << 30, Relaxed);
        let live = |process: u64, own: u64, others: u64| {
            page.measured.note(1, [2 << 30, 0, 0, 0, 0, 1536 << 20, process]);
            let share = Share { own: own << 20, others: others << 20 };
            Heap::of([(&page, share)].into_iter()).map(|heap| heap.live_bytes >> 20)
        };
        assert_eq!(live(4586 << 20, 900, 3686), Some(2048));
        // It was touched since, and then the process forked.
        assert_eq!(live(512 << 20, 228, 1820), Some(228));
    }

    #[test]
    fn what_was_touched_since_it_was_measured_is_unknown() {
        const LATER: u64 = 5_000_000_000;
        let page = Stats::new();
        page.mapped_bytes.store(1 << 30, Relaxed);
        let of = |resident: u64, now| Memory::of(&page, resident, now).parts();
        for process in [20 << 20, 0] {
            page.measured.note(1, [1 << 30, 0, 0, 0, 0, 1 << 30, process]);
            assert_eq!(of((1 << 30) + (20 << 20), LATER), None, "the program may have filled it");
            assert!(of((1 << 30) + (20 << 20), 1000).is_some(), "just measured");
        }
        // It is the program's own memory that was there before.
        page.measured.note(1, [1 << 30, 0, 0, 0, 0, 1 << 30, 500 << 20]);
        assert_eq!(of(520 << 20, LATER), Some([0, 0, 0, 0, 0, 520 << 20]));
        assert_eq!(of(800 << 20, LATER), None);
    }

    #[test]
    fn a_heap_that_grew_since_it_was_measured_is_unknown() {
        let page = Stats::new();
        page.measured.note(1, [30 << 20, 0, 0, 0, 0, 0, 0]);
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
