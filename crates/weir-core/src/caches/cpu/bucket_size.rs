//! How large a cache's buckets are: they tune themselves, as UMA's do.
//!
//! Each cache has a *ceiling*: how many objects one CPU's bucket may hold. It starts small and doubles with demand,
//! which is told by points. A visit to the depot is one point; a depot whose lock another thread held is [`CONTENDED`]
//! points. UMA counts contention alone; but a thread that is alone meets none, and its bucket should still grow. Points
//! count within a window (tunable `bucket_visits`), so a cache that is visited now and then stays small. At each soft
//! pressure a cache that holds more than it uses halves its ceiling, once a window at most. At severe pressure all
//! ceilings sink, half of the way to the least.
//!
//! Each CPU's bucket gets the ceiling at that CPU's next visit to the depot, by the protocol of [`super::buckets`].

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::caches::geometry::Geometry;

/// Points of a visit that found the depot's lock taken.
pub const CONTENDED: u32 = 4;

/// The ceiling of a cache's buckets, in objects.
pub struct Tuning {
    ceiling: AtomicU32,
    /// The ceiling was halved in this window.
    halved: AtomicBool,
}

/// The points of a depot, kept behind its lock.
#[derive(Debug, Default)]
pub struct Points(u32);

impl Points {
    /// No points.
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// A visit. Whether there have been `enough` points, so that the ceiling should double.
    #[inline]
    pub(crate) fn visit(&mut self, contended: bool, enough: u64) -> bool {
        self.0 += if contended { CONTENDED } else { 1 };
        let enough = u64::from(self.0) >= enough;
        if enough {
            self.0 = 0;
        }
        enough
    }

    /// A window ended.
    pub(crate) fn end_window(&mut self) {
        self.0 = 0;
    }
}

impl Tuning {
    /// At its start.
    pub(crate) const fn new(geometry: &Geometry) -> Self {
        Self { ceiling: AtomicU32::new(geometry.bucket[1] as u32), halved: AtomicBool::new(false) }
    }

    /// Starts again, for another cache.
    pub(crate) fn reset(&self, geometry: &Geometry) {
        self.ceiling.store(geometry.bucket[1].into(), Relaxed);
        self.halved.store(false, Relaxed);
    }

    /// Objects that a CPU's bucket may hold now.
    #[inline]
    pub(crate) fn ceiling(&self) -> usize {
        self.ceiling.load(Relaxed) as usize
    }

    /// Objects to be moved at a time now.
    #[inline]
    pub(crate) fn batch(&self, geometry: &Geometry) -> usize {
        (self.ceiling() / 2).clamp(1, geometry.batch.into())
    }

    /// Demand is such that it doubles.
    #[inline]
    pub(crate) fn grow(&self, geometry: &Geometry) {
        let (ceiling, most) = (self.ceiling.load(Relaxed), u32::from(geometry.bucket[2]));
        if ceiling < most {
            self.ceiling.store((ceiling * 2).min(most), Relaxed);
        }
    }

    /// Soft pressure found more in the cache than it uses.
    pub(crate) fn halve(&self, geometry: &Geometry) {
        if !self.halved.swap(true, Relaxed) {
            let half = (self.ceiling.load(Relaxed) / 2).max(geometry.bucket[0].into());
            self.ceiling.store(half, Relaxed);
        }
    }

    /// Severe pressure: half of the way to the least.
    pub(crate) fn sink(&self, geometry: &Geometry) {
        let least = u32::from(geometry.bucket[0]);
        self.ceiling.store((self.ceiling.load(Relaxed) + least) / 2, Relaxed);
    }

    /// A window ended.
    pub(crate) fn end_window(&self) {
        self.halved.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry::new(100, 64);
    const LEAST: usize = G.bucket[0] as usize;
    const START: usize = G.bucket[1] as usize;
    const MOST: usize = G.bucket[2] as usize;
    const ENOUGH: u64 = 16;

    #[test]
    fn visits_within_a_window_double_it_and_contention_does_so_sooner() {
        let mut points = Points::new();
        assert!((0..ENOUGH - 1).all(|_| !points.visit(false, ENOUGH)));
        points.end_window();
        assert!(!points.visit(false, ENOUGH));
        points.end_window();
        assert_eq!((1..).find(|_| points.visit(true, ENOUGH)), Some(ENOUGH / u64::from(CONTENDED)));
        let tuning = Tuning::new(&G);
        tuning.grow(&G);
        assert_eq!(tuning.ceiling(), START * 2);
        (0..10).for_each(|_| tuning.grow(&G));
        assert_eq!((tuning.ceiling(), tuning.batch(&G)), (MOST, MOST / 2));
    }

    #[test]
    fn pressure_halves_it_once_a_window_and_never_below_the_least() {
        let tuning = Tuning::new(&G);
        tuning.halve(&G);
        tuning.halve(&G);
        assert_eq!(tuning.ceiling(), START / 2);
        for _ in 0..10 {
            tuning.end_window();
            tuning.halve(&G);
        }
        assert_eq!(tuning.ceiling(), LEAST);
        tuning.sink(&G);
        assert_eq!(tuning.ceiling(), LEAST);
    }
}
