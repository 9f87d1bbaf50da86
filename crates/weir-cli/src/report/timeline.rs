//! Events and samples over time, in bounded memory however long it went on.

use super::records::{Cause, Pressure};
use crate::figures::memory::Memory;

/// Points at most: some three for each pixel of the picture.
const MOST_POINTS: usize = 2000;
/// Intervals at most, in which released memory is added up.
const MOST_BINS: usize = 120;
/// The first width of an interval, ns.
const LEAST_WIDTH: u64 = 1 << 20;

/// A sample of the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// ns, or the number of the sample.
    pub at: u64,
    pub memory: Memory,
    pub pressure: Pressure,
}

/// Samples in the order of time. When there are too many, each two become one: that with the larger resident set, and
/// the higher pressure of both. So no peak is lost.
#[derive(Default)]
pub struct Samples {
    points: Vec<Point>,
    /// Samples that become a point, as a power of two, and those that the last point has.
    doublings: u32,
    in_last: u64,
}

impl Samples {
    /// Adds a sample at this time, without pressure.
    pub fn add(&mut self, at: u64, memory: Memory) {
        self.push(Point { at, memory, pressure: Pressure::None });
    }

    pub fn push(&mut self, point: Point) {
        match self.points.last_mut() {
            Some(last) if self.in_last < 1 << self.doublings => {
                *last = merged(*last, point);
                self.in_last += 1;
            }
            _ => {
                if self.points.len() == MOST_POINTS {
                    self.points = self
                        .points
                        .chunks(2)
                        .map(|pair| pair.iter().copied().reduce(merged))
                        .collect::<Option<_>>()
                        .unwrap_or_default();
                    self.doublings += 1;
                }
                self.points.push(point);
                self.in_last = 1;
            }
        }
    }

    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

fn merged(a: Point, b: Point) -> Point {
    let larger = if b.memory.resident_bytes > a.memory.resident_bytes { b } else { a };
    Point { pressure: a.pressure.max(b.pressure), ..larger }
}

/// Bytes released in equal intervals, by cause: as [`CAUSES`](crate::figures::released::CAUSES) has them, and others.
#[derive(Default)]
pub struct Bins {
    pub start_ns: u64,
    width_ns: u64,
    bins: Vec<[u64; 5]>,
}

impl Bins {
    pub fn add(&mut self, at_ns: u64, cause: Cause, bytes: u64) {
        if self.bins.is_empty() {
            (self.start_ns, self.width_ns) = (at_ns, LEAST_WIDTH);
        }
        // Several processes are read in turn: what one released a little before the first is with the first.
        let after = at_ns.saturating_sub(self.start_ns);
        while after / self.width_ns >= MOST_BINS as u64 {
            let pair = |pair: &[[u64; 5]]| {
                std::array::from_fn(|i| pair.iter().fold(0, |sum: u64, bin| sum.saturating_add(bin[i])))
            };
            self.bins = self.bins.chunks(2).map(pair).collect();
            self.width_ns *= 2;
        }
        let index = (after / self.width_ns) as usize;
        if self.bins.len() <= index {
            self.bins.resize(index + 1, [0; 5]);
        }
        let sum = &mut self.bins[index][cause as usize];
        *sum = sum.saturating_add(bytes);
    }

    /// The intervals: how long after the first they begin and end, ns, and the bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, [u64; 5])> {
        self.bins.iter().zip(0..).map(|(bytes, i): (_, u64)| {
            (i.saturating_mul(self.width_ns), (i + 1).saturating_mul(self.width_ns), *bytes)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: u64, resident_bytes: u64, pressure: Pressure) -> Point {
        Point { at, memory: Memory { resident_bytes, ..Memory::default() }, pressure }
    }

    #[test]
    fn of_many_samples_the_peaks_stay() {
        let mut samples = Samples::default();
        (0..100_000u64).for_each(|at| {
            let peak = at == 54_321;
            samples.push(point(
                at,
                if peak { 999 } else { at % 7 },
                if peak { Pressure::Severe } else { Pressure::None },
            ));
        });
        let points = samples.points();
        assert!((MOST_POINTS / 2..=MOST_POINTS).contains(&points.len()), "{}", points.len());
        assert!(points.is_sorted_by_key(|point| point.at));
        let peaks: Vec<_> = points.iter().filter(|point| point.pressure == Pressure::Severe).collect();
        assert_eq!((peaks.len(), peaks[0].at, peaks[0].memory.resident_bytes), (1, 54_321, 999));
    }

    #[test]
    fn intervals_grow_with_the_time_and_keep_their_bytes() {
        let mut bins = Bins::default();
        for i in 0..10_000u64 {
            bins.add(5_000 + i * 1_000_000, if i % 2 == 0 { Cause::Idle } else { Cause::Pressure }, 10);
        }
        bins.add(0, Cause::Asked, 7);
        let total = |cause: Cause| bins.iter().map(|(.., bytes)| bytes[cause as usize]).sum::<u64>();
        assert_eq!([total(Cause::Idle), total(Cause::Pressure), total(Cause::Asked)], [50_000, 50_000, 7]);
        let count = bins.iter().count();
        assert!((MOST_BINS / 2..=MOST_BINS).contains(&count), "{count}");
        bins.add(u64::MAX, Cause::Limit, u64::MAX);
        assert!(bins.iter().count() <= MOST_BINS);
    }
}
