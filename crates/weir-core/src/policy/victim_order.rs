//! The victim order: of the caches of all processes of a group, those that cost least shrink first.
//!
//! Every process of a group hears of the same pressure. If each gave an equal part, one would lose hits that are dear while its
//! neighbour kept some that are cheap. So each reads the cost curves of the others ([`crate::policy::cost_curve`]) and puts all
//! their bytes in one order by price. All together want as much as each would give by itself. Where the cheapest bytes add up
//! to that, there is the *bar*, and each gives what it has below it. This needs no coordinator: processes that read the same
//! curves find the same bar.
//!
//! What is idle is on the curves as well, and goes at once in each process. So while a neighbour has much of it, caches stay.

use crate::base::cost::{Cost, POINTS};

/// The part of one process in what all give.
///
/// ```
/// use weir_core::base::cost::Cost;
/// use weir_core::policy::victim_order::VictimOrder;
/// let bytes_at = |bytes, second_ns| [Cost { bytes, second_ns, ..Cost::default() }];
/// let (cheap, dear) = (bytes_at(1000, 10), bytes_at(1000, 20));
/// let mut order = VictimOrder::new(dear, 100);
/// order.add(cheap, 100);
/// assert_eq!(order.part(), Some(0));
/// let mut order = VictimOrder::new(cheap, 100);
/// order.add(dear, 100);
/// assert_eq!(order.part(), Some(200));
/// assert_eq!(VictimOrder::new(cheap, 100).part(), None);
/// ```
#[derive(Clone, Debug)]
pub struct VictimOrder {
    /// The parts of the process's own curve, cheapest first.
    own: [Cost; POINTS],
    /// For each: bytes of others that are cheaper.
    cheaper: [u64; POINTS],
    /// For each: bytes of others at the same price.
    alike: [u64; POINTS],
    /// Bytes that all want together.
    wanted: u64,
    has_others: bool,
}

impl VictimOrder {
    /// Of a process with these points on its curve, which would give `alone` bytes by itself.
    pub fn new(points: impl IntoIterator<Item = Cost>, alone: u64) -> Self {
        let (mut own, mut last) = ([Cost::default(); POINTS], 0);
        for part in parts(points) {
            // Parts of one price are one part.
            if own[last].is_cheaper(&part) && own[last].bytes > 0 {
                last += 1;
            }
            let Some(place) = own.get_mut(last) else { break };
            *place = place.plus(&part);
        }
        let mut order = Self { own, cheaper: [0; POINTS], alike: [0; POINTS], wanted: 0, has_others: false };
        order.wanted = alone.min(order.bytes());
        order
    }

    /// Bytes that the process could do without, by its curve.
    pub fn bytes(&self) -> u64 {
        self.own.iter().fold(0, |sum, part| part.bytes.saturating_add(sum))
    }

    /// Adds another process with these points on its curve, which would give `alone` bytes by itself. It wants no more than it
    /// has.
    pub fn add(&mut self, points: impl IntoIterator<Item = Cost>, alone: u64) {
        let mut total = 0u64;
        for part in parts(points) {
            total = total.saturating_add(part.bytes);
            for (own, (cheaper, alike)) in self.own.iter().zip(self.cheaper.iter_mut().zip(&mut self.alike)) {
                let sum = if part.is_cheaper(own) {
                    cheaper
                } else if own.is_cheaper(&part) {
                    continue;
                } else {
                    alike
                };
                *sum = sum.saturating_add(part.bytes);
            }
        }
        self.wanted = self.wanted.saturating_add(alone.min(total));
        self.has_others |= total > 0;
    }

    /// Bytes that the process is to give of what all want; `None`: there is no other to compare with.
    pub fn part(&self) -> Option<u64> {
        self.part_of(self.wanted)
    }

    /// Bytes that the process is to give of so many that are missing, whatever each wants.
    pub fn part_of(&self, missing: u64) -> Option<u64> {
        let (mut before, mut part) = (0u64, 0u64);
        for (at, own) in self.own.iter().enumerate() {
            let left = missing.saturating_sub(self.cheaper[at]).saturating_sub(before);
            let together = own.bytes.saturating_add(self.alike[at]);
            // Of what has one price each gives an equal share.
            let share = u128::from(own.bytes) * u128::from(left.min(together)) / u128::from(together.max(1));
            part += u64::try_from(share).unwrap_or(own.bytes);
            before = before.saturating_add(own.bytes);
        }
        self.has_others.then_some(part)
    }
}

/// The parts of a curve with these points.
fn parts(points: impl IntoIterator<Item = Cost>) -> impl Iterator<Item = Cost> {
    let step = |before: &mut Cost, point: Cost| Some(point.less(&core::mem::replace(before, point)));
    points.into_iter().scan(Cost::default(), step).filter(|part| part.bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::cache_cost::{self, CacheUse};
    use crate::policy::cost_curve::CostCurve;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// What each of the processes gives: their curves, and what each would give alone.
    fn given(all: &[(Vec<Cost>, u64)]) -> Vec<u64> {
        let order = |own: usize| {
            let mut order = VictimOrder::new(all[own].0.iter().copied(), all[own].1);
            let others = all.iter().enumerate().filter(|&(at, _)| at != own);
            others.for_each(|(_, (points, alone))| order.add(points.iter().copied(), *alone));
            order.part().unwrap_or(*alone_of(all, own))
        };
        (0..all.len()).map(order).collect()
    }

    fn alone_of(all: &[(Vec<Cost>, u64)], at: usize) -> &u64 {
        &all[at].1
    }

    fn points(parts: &[Cost]) -> Vec<Cost> {
        let mut curve = CostCurve::default();
        parts.iter().for_each(|&part| curve.add(part));
        curve.points().collect()
    }

    fn total(points: &[Cost]) -> u64 {
        points.last().map_or(0, |last| last.bytes)
    }

    proptest! {
        #[test]
        fn together_they_give_what_each_would_alone_and_none_gives_dearer_bytes_than_another_keeps(
            all in prop::collection::vec((prop::collection::vec((1..1000u64, 0..6u64), 1..8), 0..500u64), 2..12),
        ) {
            let part = |&(bytes, price): &(u64, u64)| Cost { bytes, second_ns: bytes * price, ..Cost::default() };
            let all: Vec<(Vec<Cost>, u64)> =
                all.iter().map(|(parts, alone)| (points(&parts.iter().map(part).collect::<Vec<_>>()), *alone)).collect();
            let given = given(&all);
            let wanted: u64 = all.iter().map(|(points, alone)| (*alone).min(total(points))).sum();
            let sum: u64 = given.iter().sum();
            // Shares of one price are rounded down.
            prop_assert!(sum <= wanted && sum + (all.len() * POINTS) as u64 >= wanted, "{sum} of {wanted}");
            // The dearest byte that anybody gives, and the cheapest that anybody keeps.
            let price_at = |points: &[Cost], at: u64| {
                let mut ends = points.iter().scan(Cost::default(), |before, point| {
                    let part = point.less(before);
                    *before = *point;
                    Some((point.bytes, part.second_ns / part.bytes))
                });
                ends.find(|&(end, _)| end > at).map(|(_, price)| price)
            };
            let dearest = all.iter().zip(&given).filter(|&(_, &bytes)| bytes > 0);
            let dearest = dearest.filter_map(|((points, _), &bytes)| price_at(points, bytes - 1)).max();
            let slack = (all.len() * POINTS) as u64;
            let cheapest = all.iter().zip(&given).filter_map(|((points, _), &bytes)| price_at(points, bytes + slack)).min();
            if let (Some(dearest), Some(cheapest)) = (dearest, cheapest) {
                prop_assert!(dearest <= cheapest, "given {given:?}: a byte of {dearest}, kept one of {cheapest}");
            }
        }

        #[test]
        fn any_curves_are_read_without_harm(
            own in prop::collection::vec(any::<[u64; 4]>(), 0..20),
            other in prop::collection::vec(any::<[u64; 4]>(), 0..20),
            alone: [u64; 2],
        ) {
            let points = |words: &[[u64; 4]]| {
                let cost = |&[bytes, once_ns, second_ns, lost_ppm]: &[u64; 4]| Cost { bytes, once_ns, second_ns, lost_ppm };
                words.iter().map(cost).collect::<Vec<_>>()
            };
            let mut order = VictimOrder::new(points(&own), alone[0]);
            order.add(points(&other), alone[1]);
            let _ = order.part();
        }
    }

    /// A process with a cache: of its hits x^exponent are left with the part x of `full` bytes.
    #[derive(Clone, Copy, Debug)]
    struct Process {
        full: f64,
        bytes: f64,
        exponent: f64,
        /// Hits a second with all of its bytes, and what a miss takes, ns.
        hits: f64,
        miss_ns: f64,
    }

    impl Process {
        fn hits_now(&self, bytes: f64) -> f64 {
            self.hits * (bytes / self.full).powf(self.exponent)
        }

        /// Time that its hits save in each second, ns.
        fn work(&self, bytes: f64) -> f64 {
            self.hits_now(bytes) * self.miss_ns
        }

        /// The curve as the process itself publishes it, and what it would give alone.
        fn curve(&self) -> (Vec<Cost>, u64) {
            let hit_rate = self.hits_now(self.bytes) * 1000.0;
            let cache = CacheUse {
                bytes: self.bytes as u64,
                spare_bytes: self.bytes as u64,
                hit_rate: hit_rate as u64,
                return_rate: (hit_rate * self.exponent / 3.333).max(1.0) as u64,
                miss_ns: self.miss_ns as u64,
                is_edge_hidden: false,
            };
            (points(&cache_cost::parts(&cache, cache.hit_rate)), self.bytes as u64 / 64)
        }
    }

    /// Bytes of each after `taken` bytes went, each time from where they cost least.
    fn best(processes: &[Process], taken: f64) -> Vec<f64> {
        let mut bytes: Vec<f64> = processes.iter().map(|process| process.bytes).collect();
        let steps = 4000;
        for _ in 0..steps {
            let step = taken / f64::from(steps);
            let loss = |at: usize| match bytes[at] > step {
                true => processes[at].work(bytes[at]) - processes[at].work(bytes[at] - step),
                false => f64::INFINITY,
            };
            let least = (0..bytes.len()).min_by(|&one, &two| loss(one).total_cmp(&loss(two))).unwrap();
            bytes[least] -= step;
        }
        bytes
    }

    #[test]
    fn a_hundred_processes_keep_what_is_dear_without_a_coordinator_and_without_swings() {
        // Any sequence of numbers does.
        let mut state = 1u64;
        let mut random = |from: f64, to: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            from + (to - from) * ((state >> 33) as f64 / (1u64 << 31) as f64)
        };
        let mut processes: Vec<Process> = (0..100)
            .map(|_| {
                let full = random(16e6, 1e9);
                let (exponent, hits, miss_ns) = (random(0.1, 0.9), random(1e2, 1e5), random(1e4, 1e7));
                Process { full, bytes: full, exponent, hits, miss_ns }
            })
            .collect();
        let full = processes.clone();
        let all: f64 = full.iter().map(|process| process.full).sum();
        let work = |bytes: &[f64]| full.iter().zip(bytes).map(|(process, &bytes)| process.work(bytes)).sum::<f64>();
        // Memory shrinks, returns in part, shrinks again. Where it returns each cache grows alike.
        for percent in [20.0, 50.0, 30.0, 70.0, 10.0, 60.0] {
            let room = all * (1.0 - percent / 100.0);
            let mut events = 0;
            let used = |processes: &[Process]| processes.iter().map(|process| process.bytes).sum::<f64>();
            let grown = room / used(&processes).min(room);
            processes.iter_mut().for_each(|process| process.bytes = (process.bytes * grown).min(process.full));
            while used(&processes) > room {
                let before = used(&processes);
                let curves: Vec<_> = processes.iter().map(Process::curve).collect();
                let given = given(&curves);
                let most: u64 = curves.iter().map(|(_, alone)| alone).sum();
                assert!(given.iter().sum::<u64>() <= most, "an event takes no more than it would if each gave alike");
                processes.iter_mut().zip(given).for_each(|(process, bytes)| process.bytes -= bytes as f64);
                assert!(before - used(&processes) >= most as f64 * 0.99, "and no less");
                events += 1;
                assert!(events < 1000);
            }
            let now: Vec<f64> = processes.iter().map(|process| process.bytes).collect();
            let oracle = best(&full, all - used(&processes));
            let alike: Vec<f64> = full.iter().map(|process| process.full * used(&processes) / all).collect();
            let [now, oracle, alike] = [&now, &oracle, &alike].map(|bytes| work(bytes));
            assert!(now >= 0.95 * oracle && now > 1.05 * alike, "{percent} % less: {} of the best", now / oracle);
        }
    }
}
