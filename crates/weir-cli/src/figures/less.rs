//! What it would cost a process to have less memory, by the cost curve on its page.

use super::rows;
use crate::base::units::{bytes, nanoseconds};
use serde::Serialize;
use std::fmt;
use weir_core::base::cost::Cost;
use weir_core::policy::cost_curve::cost_of;
use weir_core::telemetry::stats::Stats;

/// Bytes of which it is told in words, where the process has so many to spare.
const TOLD: u64 = 100 << 20;

/// The cost of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Less {
    bytes: u64,
    /// Time to get them back, ns.
    once_ns: u64,
    /// Time lost in each second without them, ns.
    second_ns: u64,
    /// Millionths of the hits of its evictable caches.
    lost_hits_ppm: u64,
    /// Bytes that it could do without in all.
    spare_bytes: u64,
}

impl Less {
    /// Of 100 MiB, or of all that it could do without; `None`: there is nothing, or nothing was measured.
    pub fn of(page: &Stats) -> Option<Self> {
        let points = points(page);
        let spare = points.last()?.bytes;
        let cost = cost_of(points, spare.min(TOLD))?;
        let Cost { bytes, once_ns, second_ns, lost_ppm } = cost;
        (bytes > 0).then_some(Self { bytes, once_ns, second_ns, lost_hits_ppm: lost_ppm, spare_bytes: spare })
    }
}

impl fmt::Display for Less {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} less would cost {} once", bytes(self.bytes), nanoseconds(self.once_ns))?;
        if self.second_ns > 0 || self.lost_hits_ppm > 0 {
            let share = self.lost_hits_ppm.min(1_000_000) as f64 / 10_000.0;
            write!(f, ", and {share:.1} % of hits ({} a second)", nanoseconds(self.second_ns))?;
        }
        write!(f, "; {} to spare in all", bytes(self.spare_bytes))
    }
}

/// The points of the curve.
pub fn points(page: &Stats) -> Vec<Cost> {
    rows(&page.costs).0
}

/// What a part of all that could be done without would cost, the cheapest bytes first: the share, and its cost. None of a
/// share that has no byte.
pub fn by_share(points: &[Cost]) -> impl Iterator<Item = (&'static str, Cost)> {
    let spare = points.last().map_or(0, |all| all.bytes);
    let shares = [("0.25", spare / 4), ("0.5", spare / 2), ("1", spare)];
    let costs = shares.into_iter().filter_map(|(share, bytes)| Some((share, cost_of(points.iter().copied(), bytes)?)));
    costs.filter(|(_, cost)| cost.bytes > 0)
}

/// The parts of a cost curve, cheapest first: each of some bytes at one price.
pub fn parts(points: &[Cost]) -> impl Iterator<Item = Cost> {
    let before = [Cost::default()].into_iter().chain(points.iter().copied());
    before.zip(points).map(|(before, point)| point.less(&before)).filter(|part| part.bytes > 0)
}

/// The [`parts`] that a process can give: whatever it says of itself, no more than is resident.
pub fn parts_within(points: &[Cost], resident: u64) -> impl Iterator<Item = Cost> {
    let mut left = resident;
    let there = parts(points).map(move |part| {
        let there = part.part(part.bytes.min(left));
        left -= there.bytes;
        there
    });
    there.filter(|part| part.bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::page::Page;
    use weir_core::telemetry::stats::PAGE_BYTES;

    #[test]
    fn it_is_told_in_words() {
        let page = Page::of(&[0; PAGE_BYTES]).unwrap();
        assert_eq!(Less::of(&page), None);
        let told = |points: &[Cost]| {
            page.costs.write(|add| points.iter().copied().for_each(add));
            Less::of(&page).unwrap().to_string()
        };
        let idle = Cost { bytes: 50 << 20, once_ns: 20_000_000, ..Cost::default() };
        assert_eq!(told(&[idle]), "50.0 MiB less would cost 20.0 ms once; 50.0 MiB to spare in all");
        let cache = Cost { bytes: 200 << 20, second_ns: 8_000_000, lost_ppm: 40_000, ..Cost::default() };
        assert_eq!(
            told(&[idle, idle.plus(&cache)]),
            "100.0 MiB less would cost 20.0 ms once, and 1.0 % of hits (2.0 ms a second); 250.0 MiB to spare in all"
        );
    }
}
