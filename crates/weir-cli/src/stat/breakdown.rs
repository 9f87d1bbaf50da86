//! What a process's resident set consists of.

use crate::base::units::{bytes, nanoseconds};
use crate::inspect::page::Page;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// How old a measurement may be that does not fit the resident set any more, ns: it was made a little before.
const FRESH_NS: u64 = 1_000_000_000;
/// Bytes by which what cannot be released may exceed the resident set, and as a share of it, 1 / SLACK_SHARE: where it is
/// more, it was measured of another resident set.
const SLACK: u64 = 1 << 20;
const SLACK_SHARE: u64 = 16;

/// Parts that add up to the resident set, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Told")]
pub struct Breakdown {
    pub resident_bytes: u64,
    /// Of what the program holds, what is resident.
    pub live_bytes: u64,
    pub idle_bytes: u64,
    pub fragmented_bytes: u64,
    pub metadata_bytes: u64,
    /// Code and data, stacks, mappings of the program's own, zones of the program's own.
    pub not_weirs_bytes: u64,
    /// Not resident: what the program holds and never touched, or what was swapped out.
    pub untouched_bytes: u64,
    /// How long ago Weir measured its part, ns; none: never, as its heap is small, and all counts as not Weir's.
    pub measured_ns_ago: Option<u64>,
    /// The parts are unknown: what was measured is of a resident set that is no more. They are not to be shown.
    pub is_stale: bool,
}

/// The same as JSON: parts that are unknown are null.
#[derive(Serialize)]
struct Told {
    resident_bytes: u64,
    live_bytes: Option<u64>,
    idle_bytes: Option<u64>,
    fragmented_bytes: Option<u64>,
    metadata_bytes: Option<u64>,
    not_weirs_bytes: Option<u64>,
    untouched_bytes: Option<u64>,
    measured_ns_ago: Option<u64>,
}

impl From<Breakdown> for Told {
    fn from(it: Breakdown) -> Self {
        Self {
            resident_bytes: it.resident_bytes,
            live_bytes: it.known(it.live_bytes),
            idle_bytes: it.known(it.idle_bytes),
            fragmented_bytes: it.known(it.fragmented_bytes),
            metadata_bytes: it.known(it.metadata_bytes),
            not_weirs_bytes: it.known(it.not_weirs_bytes),
            untouched_bytes: it.known(it.untouched_bytes),
            measured_ns_ago: it.measured_ns_ago,
        }
    }
}

impl Breakdown {
    /// A part of it, as far as it is known.
    pub fn known(&self, part: u64) -> Option<u64> {
        (!self.is_stale).then_some(part)
    }

    /// Of a process with so many resident bytes, by its page.
    pub fn of(page: &Page, resident_bytes: u64, now_ns: u64) -> Self {
        let measured = &page.measured;
        let [at, live, idle, fragmented, metadata, untouched] = [
            &measured.at,
            &measured.live,
            &measured.idle,
            &measured.fragmented,
            &measured.metadata,
            &measured.untouched,
        ]
        .map(|figure| figure.load(Relaxed));
        if at == 0 {
            return Self::part(resident_bytes, [0; 5], None);
        }
        Self::part(resident_bytes, [live, idle, fragmented, metadata, untouched], Some(now_ns.saturating_sub(at)))
    }

    /// The parts were measured before the resident set was read. Where they exceed it by now, it was memory that can go
    /// which went: what is idle first.
    fn part(resident_bytes: u64, [live, idle, fragmented, metadata, untouched]: [u64; 5], ago: Option<u64>) -> Self {
        // Objects in buckets and depots are idle; of them, too, some may never have been touched.
        let (live_bytes, more) = (live.saturating_sub(untouched), untouched.saturating_sub(live));
        let stays = live_bytes.saturating_add(metadata).saturating_add(fragmented);
        let is_other = stays.saturating_sub(resident_bytes) > SLACK.max(resident_bytes / SLACK_SHARE);
        let mut left = resident_bytes;
        let mut take = |part: u64| {
            let taken = part.min(left);
            left -= taken;
            taken
        };
        let [live_bytes, metadata_bytes, fragmented_bytes] = [live_bytes, metadata, fragmented].map(&mut take);
        let idle_bytes = take(idle.saturating_sub(more));
        Self {
            resident_bytes,
            live_bytes,
            idle_bytes,
            fragmented_bytes,
            metadata_bytes,
            not_weirs_bytes: left,
            untouched_bytes: untouched,
            measured_ns_ago: ago,
            is_stale: is_other && ago.is_some_and(|ago| ago > FRESH_NS),
        }
    }
}

impl fmt::Display for Breakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("live", self.live_bytes, "in use by the program"),
            ("idle", self.idle_bytes, "free, can be released"),
            ("fragmented", self.fragmented_bytes, "free, beside objects in use on the same pages"),
            ("metadata", self.metadata_bytes, "Weir's own"),
            ("not Weir's", self.not_weirs_bytes, "code, data, stacks, mappings of the program's own"),
        ];
        if let Some(ago) = self.measured_ns_ago.filter(|_| self.is_stale) {
            return writeln!(
                f,
                "  resident {}; what it consists of is unknown: it was measured {} ago, and has changed since",
                bytes(self.resident_bytes),
                nanoseconds(ago)
            );
        }
        for (name, part, what) in parts {
            let percent = part as f64 * 100.0 / self.resident_bytes.max(1) as f64;
            writeln!(f, "  {name:<12} {:>12} {percent:>6.1} %  {what}", bytes(part))?;
        }
        writeln!(f, "  {:<12} {:>12} {:>6.1} %", "resident", bytes(self.resident_bytes), 100.0)?;
        if self.untouched_bytes > 0 {
            writeln!(
                f,
                "  and {} in use by the program that it never touched, or that is swapped out",
                bytes(self.untouched_bytes)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_resident_set_whatever_was_measured() {
        for figures in [[50, 20, 5, 3, 8], [500, 20, 5, 3, 8], [0, 0, 0, 0, 0], [10, 80, 0, 0, 30], [5, 900, 9, 9, 0]] {
            let it = Breakdown::part(100, figures, Some(1));
            let sum = it.live_bytes + it.idle_bytes + it.fragmented_bytes + it.metadata_bytes + it.not_weirs_bytes;
            assert_eq!(sum, 100, "{it:?}");
        }
        let it = Breakdown::part(100, [50, 20, 5, 3, 8], None);
        assert_eq!((it.live_bytes, it.idle_bytes, it.not_weirs_bytes), (42, 20, 30));
        // 80 idle bytes were released since they were measured, of which 20 are missing in the resident set.
        assert_eq!(Breakdown::part(100, [40, 80, 0, 0, 0], None).idle_bytes, 60);
        assert!(it.to_string().lines().count() >= 6);
    }

    #[test]
    fn an_old_measurement_of_another_resident_set_is_not_shown() {
        let of = |live: u64, ago| Breakdown::part(9 << 20, [live, 0, 0, 0, 0], Some(ago));
        let old = of(60 << 20, 5_000_000_000);
        let shown = old.to_string();
        assert!(shown.contains("9.0 MiB; what it consists of is unknown: it was measured 5.00 s ago"), "{shown}");
        let told = serde_json::to_value(old).unwrap();
        assert!(told["live_bytes"].is_null() && told["resident_bytes"] == 9 << 20, "{told}");
        assert!(!of(60 << 20, 1000).is_stale && !of(9 << 20, 5_000_000_000).is_stale);
        // What is idle may have been released since.
        assert!(!Breakdown::part(9 << 20, [1 << 20, 60 << 20, 0, 0, 0], Some(5_000_000_000)).is_stale);
    }
}
