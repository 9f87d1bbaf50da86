//! The cost curve of a process: how many bytes it could do without, cheapest first, and what they would cost it.
//!
//! The curve is made of parts, each of some bytes at one price. They are sorted by price and summed up, so a point of the curve
//! is what all bytes up to it cost together. Where there are more parts than points, the two neighbours that are smallest
//! together become one. So no byte and no cost is lost, and the curve stays convex.

use crate::base::cost::{Cost, POINTS};

/// See the module.
///
/// ```
/// use weir_core::base::cost::Cost;
/// use weir_core::policy::cost_curve::{CostCurve, cost_of};
/// let mut curve = CostCurve::default();
/// curve.add(Cost { bytes: 100, second_ns: 1000, ..Cost::default() });
/// curve.add(Cost { bytes: 50, once_ns: 25, ..Cost::default() });
/// let idle_first = cost_of(curve.points(), 70).unwrap();
/// assert_eq!((idle_first.once_ns, idle_first.second_ns), (25, 200));
/// assert_eq!(cost_of(curve.points(), 151), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostCurve {
    /// By price; those behind `len` are empty.
    parts: [Cost; POINTS + 1],
    len: usize,
}

impl CostCurve {
    /// Adds a part. One without bytes is none.
    pub fn add(&mut self, part: Cost) {
        if part.bytes == 0 {
            return;
        }
        let at = self.parts[..self.len].iter().position(|other| part.is_cheaper(other)).unwrap_or(self.len);
        self.parts[at..=self.len].rotate_right(1);
        self.parts[at] = part;
        self.len += 1;
        if self.len > POINTS {
            self.merge_two();
        }
    }

    /// Makes one part of the two neighbours that are smallest together.
    fn merge_two(&mut self) {
        let together = |&at: &usize| self.parts[at].bytes.saturating_add(self.parts[at + 1].bytes);
        let Some(at) = (0..self.len - 1).min_by_key(together) else { return };
        self.parts[at] = self.parts[at].plus(&self.parts[at + 1]);
        self.parts[at + 1..self.len].rotate_left(1);
        self.len -= 1;
        self.parts[self.len] = Cost::default();
    }

    /// The points, from the cheapest byte on: each of all bytes up to it.
    pub fn points(&self) -> impl Iterator<Item = Cost> {
        self.parts[..self.len].iter().scan(Cost::default(), |sum, part| {
            *sum = sum.plus(part);
            Some(*sum)
        })
    }
}

/// What the cheapest `bytes` of the curve with these points cost; `None`: the process could not do without so many.
pub fn cost_of(points: impl IntoIterator<Item = Cost>, bytes: u64) -> Option<Cost> {
    let mut before = Cost::default();
    if bytes == 0 {
        return Some(before); // also of a curve without points
    }
    for point in points {
        if point.bytes >= bytes {
            let part = point.less(&before);
            return Some(before.plus(&part.part(bytes.saturating_sub(before.bytes).min(part.bytes))));
        }
        before = point;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn part() -> impl Strategy<Value = Cost> {
        let amount = || prop_oneof![0..100u64, 0..1u64 << 40];
        (amount(), amount(), amount(), 0..1_000_000u64).prop_map(|(bytes, once_ns, second_ns, lost_ppm)| Cost {
            bytes,
            once_ns,
            second_ns,
            lost_ppm,
        })
    }

    fn curve(parts: &[Cost]) -> (CostCurve, Vec<Cost>) {
        let mut curve = CostCurve::default();
        parts.iter().for_each(|&part| curve.add(part));
        let points = curve.points().collect();
        (curve, points)
    }

    proptest! {
        #[test]
        fn a_curve_is_of_all_bytes_and_rises_in_bytes_and_in_price(parts in prop::collection::vec(part(), 0..40)) {
            let (_, points) = curve(&parts);
            let sum = parts.iter().filter(|part| part.bytes > 0).fold(Cost::default(), |sum, part| sum.plus(part));
            prop_assert_eq!(points.last().copied().unwrap_or_default(), sum);
            prop_assert!(points.len() <= POINTS);
            let starts = [Cost::default()].into_iter().chain(points.iter().copied());
            let steps: Vec<_> = starts.zip(&points).map(|(from, to)| to.less(&from)).collect();
            prop_assert!(steps.iter().all(|step| step.bytes > 0));
            prop_assert!(steps.windows(2).all(|two| !two[1].is_cheaper(&two[0])), "{:?}", steps);
        }

        #[test]
        fn no_other_choice_of_so_many_bytes_is_cheaper(parts in prop::collection::vec(part(), 1..16), of in 0u64..1000) {
            let (_, points) = curve(&parts);
            let all = points.last().copied().unwrap_or_default();
            let bytes = u64::try_from(u128::from(all.bytes) * u128::from(of) / 1000).unwrap();
            let cheapest = cost_of(points.iter().copied(), bytes).unwrap();
            prop_assert_eq!(cheapest.bytes, bytes);
            // As many of each part as it has of all. Each step's division rounds down.
            let alike = all.part(bytes);
            let rounding = 11 * (parts.len() as u64 + 1);
            prop_assert!(cheapest.ns() <= alike.ns() + rounding, "{} {}", cheapest.ns(), alike.ns());
            prop_assert!(cost_of(points.iter().copied(), all.bytes + 1).is_none());
        }

        #[test]
        fn any_points_are_read_without_harm(words in prop::collection::vec(any::<[u64; 4]>(), 0..20), bytes: u64) {
            let points = words.iter().map(|&[bytes, once_ns, second_ns, lost_ppm]| Cost { bytes, once_ns, second_ns, lost_ppm });
            let _ = cost_of(points.clone(), bytes).map(|cost| cost.ns());
            let (mut curve, _) = curve(&points.collect::<Vec<_>>());
            curve.add(Cost { bytes: u64::MAX, once_ns: u64::MAX, second_ns: u64::MAX, lost_ppm: u64::MAX });
            prop_assert!(curve.points().count() <= POINTS);
        }
    }

    #[test]
    fn equal_prices_keep_the_order_in_which_they_came() {
        let part = |bytes| Cost { bytes, once_ns: bytes * 3, ..Cost::default() };
        let (_, points) = curve(&[part(5), part(7), Cost { bytes: 1, ..Cost::default() }]);
        assert_eq!(points.iter().map(|point| point.bytes).collect::<Vec<_>>(), [1, 6, 13]);
    }
}
