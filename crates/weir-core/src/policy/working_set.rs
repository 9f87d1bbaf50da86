//! How much of what is free will be wanted again: two estimates, one for pages and one for caches.

use crate::base::time::{Nanos, Time};

use super::hold::MOST_WINDOWS;

/// The highest value over the last windows, as many as idle memory is kept for. Values are amounts of one unit.
///
/// ```
/// let mut peak = weir_core::policy::working_set::Peak::new(0);
/// peak.note(10);
/// assert_eq!(peak.wanted(), 10); // 10 was seen in the window that ends here
/// peak.roll(3, 1, false);
/// assert_eq!(peak.wanted(), 3); // and not in this one
/// ```
#[derive(Debug)]
pub struct Peak<T> {
    now: T,
    /// Peaks of the windows before, the last one first.
    last: [T; MOST_WINDOWS],
    /// Over how many windows what was used is kept.
    windows: usize,
}

impl<T: Copy + Ord> Peak<T> {
    /// Nothing seen yet but `zero`.
    pub const fn new(zero: T) -> Self {
        Self { now: zero, last: [zero; MOST_WINDOWS], windows: 1 }
    }

    /// Notes a value.
    #[inline]
    pub fn note(&mut self, value: T) {
        self.now = self.now.max(value);
    }

    /// Ends the window; returns its peak. The next begins at `value`, and what was used is kept over `windows` from now on.
    /// In a quiet window nothing was used but what is used at its end: what fell meanwhile, reclaim has taken.
    pub fn roll(&mut self, value: T, windows: usize, quiet: bool) -> T {
        self.last.copy_within(..MOST_WINDOWS - 1, 1);
        self.last[0] = if quiet { value } else { self.now };
        (self.now, self.windows) = (value, windows.clamp(1, MOST_WINDOWS));
        self.last[0]
    }

    /// Demand that may come again at the end of this window: the highest value of the windows over which what was used is
    /// kept.
    pub fn wanted(&self) -> T {
        self.highest(self.windows - 1)
    }

    /// Highest value of late: that of one window more than [`Peak::wanted`] takes.
    pub(crate) fn high(&self) -> T {
        self.highest(self.windows)
    }

    fn highest(&self, before: usize) -> T {
        self.last[..before].iter().fold(self.now, |high, &value| high.max(value))
    }
}

/// UMA's working-set estimate of a cache (FreeBSD's `uma_core.c`), in objects.
///
/// `max >= items >= batch_min >= min` holds always. Demand is a batch of allocations: the fall of `items` from a
/// maximum. Frees alone raise `max` and `batch_min` together and so are no demand. Reclaim moves all bounds with
/// `items` ([`WorkingSet::shift`]): its own traffic is not demand either. The estimate fades with time, by a quarter
/// a window, and not with the number of times that it is read.
#[derive(Debug, Clone)]
pub struct WorkingSet {
    /// Items now.
    pub items: u32,
    /// Highest in this window, and half of what the last one's was above.
    pub max: u32,
    /// Lowest in this window.
    pub min: u32,
    /// Lowest since `max` was reached.
    pub batch_min: u32,
    /// The estimate, as the last window left it.
    size: u32,
    /// When this window began.
    since: Time,
}

impl WorkingSet {
    /// An empty cache without any demand yet.
    pub(crate) const fn new() -> Self {
        Self { items: 0, max: 0, min: 0, batch_min: 0, size: 0, since: Time::ZERO }
    }

    /// `n` items came in.
    pub(crate) fn put(&mut self, n: u32) {
        self.items += n;
        if self.items > self.max {
            // A new maximum ends the batch that fell from the last one.
            self.size = self.size.max(self.max - self.batch_min);
            self.max = self.items;
            self.batch_min = self.items;
        }
    }

    /// `n` items were taken by demand.
    pub(crate) fn get(&mut self, n: u32) {
        self.items -= n;
        self.batch_min = self.batch_min.min(self.items);
        self.min = self.min.min(self.items);
    }

    /// Reclaim took `n` items.
    pub(crate) fn shift(&mut self, n: u32) {
        self.items -= n;
        self.max = self.max.saturating_sub(n).max(self.items);
        self.min = self.min.saturating_sub(n);
        self.batch_min = self.batch_min.saturating_sub(n).max(self.min);
    }

    /// How many items will be wanted again, as far as is known now.
    pub(crate) fn size(&self) -> u32 {
        self.size.max(self.max - self.batch_min)
    }

    /// How many items nobody took in a window, `window` long, that ends at `now` (both ns); 0: it is not over. To be asked before
    /// [`WorkingSet::update`] begins the next one.
    pub(crate) fn unused(&self, now: Time, window: Nanos) -> u32 {
        if now.since(self.since) >= window.max(Nanos(1)) { self.min } else { 0 }
    }

    /// [`WorkingSet::size`] at `now`, of windows that are `window` long (both ns). For each window that has ended since the last
    /// call, the estimate fades by a quarter, but not below the batch just seen. Then the bounds close in on `items`.
    pub(crate) fn update(&mut self, now: Time, window: Nanos) -> u32 {
        let ended = now.since(self.since) / window.max(Nanos(1));
        if ended > 0 {
            self.since = now;
            // After so many windows nothing is left of any estimate.
            let faded = (0..ended.min(64)).fold(self.size, |size, _| size * 3 / 4);
            self.size = faded.max(self.max - self.batch_min);
            self.max = self.items + (self.max - self.items) / 2;
            self.min = self.items;
            self.batch_min = self.items;
        }
        self.size()
    }
}

impl Default for WorkingSet {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 1000;

    #[test]
    fn a_peak_is_wanted_for_as_many_windows_as_it_is_kept() {
        for windows in 1..=MOST_WINDOWS {
            let mut peak = Peak::new(0);
            peak.roll(0, windows, true);
            peak.note(10);
            let ends = |peak: &mut Peak<usize>| {
                let wanted = peak.wanted();
                peak.roll(0, windows, false);
                wanted
            };
            let wanted: Vec<_> = (0..=windows).map(|_| ends(&mut peak)).collect();
            assert!(wanted[..windows].iter().all(|&value| value == 10) && wanted[windows] == 0, "{wanted:?}");
        }
    }

    #[test]
    fn what_falls_in_a_quiet_window_was_not_used_in_it() {
        let mut peak = Peak::new(0);
        peak.note(10);
        peak.roll(10, 2, false);
        peak.roll(4, 2, true);
        assert_eq!((peak.wanted(), peak.high()), (4, 10), "10 was used in the window before");
    }

    proptest! {
        #[test]
        fn bounds_hold_over_any_history(steps in prop::collection::vec((0u8..10, 1u32..100, 0u64..5000), 0..400)) {
            let (mut ws, mut now) = (WorkingSet::new(), 0);
            for (step, n, time) in steps {
                let before = ws.size();
                match step {
                    0..=3 => ws.put(n),
                    4..=6 => ws.get(n.min(ws.items)),
                    7 => ws.shift(n.min(ws.items)),
                    8 => now += time,
                    _ => { ws.update(Time(now), Nanos(WINDOW)); }
                }
                prop_assert!(ws.max >= ws.items && ws.items >= ws.batch_min && ws.batch_min >= ws.min, "{ws:?}");
                // Neither reclaim nor frees are demand.
                prop_assert!(ws.size() <= before || matches!(step, 4..=6), "{ws:?} after {before}");
            }
        }

        #[test]
        fn asking_often_fades_nothing(asked in 1usize..100, demand in 1u32..1000) {
            let (mut often, mut once) = (WorkingSet::new(), WorkingSet::new());
            for ws in [&mut often, &mut once] {
                ws.update(Time(10 * WINDOW), Nanos(WINDOW));
                ws.put(demand);
                ws.get(demand);
                ws.update(Time(11 * WINDOW), Nanos(WINDOW));
            }
            (0..asked as u64).for_each(|i| { often.update(Time(11 * WINDOW + i * WINDOW / 100), Nanos(WINDOW)); });
            prop_assert_eq!(often.update(Time(12 * WINDOW), Nanos(WINDOW)), once.update(Time(12 * WINDOW), Nanos(WINDOW)));
        }
    }

    #[test]
    fn frees_alone_are_no_demand_and_a_batch_is() {
        let mut ws = WorkingSet::new();
        let mut now = 0;
        let mut update = |ws: &mut WorkingSet, windows: u64| {
            now += windows * WINDOW;
            ws.update(Time(now), Nanos(WINDOW))
        };
        ws.put(100);
        assert_eq!(update(&mut ws, 1), 0);
        ws.get(40);
        ws.put(40);
        assert_eq!(update(&mut ws, 1), 40);
        assert_eq!(update(&mut ws, 1), 30);
        assert_eq!(update(&mut ws, 0), 30);
        assert_eq!(update(&mut ws, 2), 16);
        assert_eq!(update(&mut ws, 100), 0);
    }

    #[test]
    fn unused_is_what_was_there_all_the_window() {
        let mut ws = WorkingSet::new();
        ws.put(100);
        assert_eq!(ws.unused(Time(WINDOW), Nanos(WINDOW)), 0, "they came in this window");
        ws.update(Time(WINDOW), Nanos(WINDOW));
        ws.get(40);
        ws.put(90);
        assert_eq!(
            (ws.unused(Time(2 * WINDOW - 1), Nanos(WINDOW)), ws.unused(Time(2 * WINDOW), Nanos(WINDOW))),
            (0, 60)
        );
        ws.update(Time(2 * WINDOW), Nanos(WINDOW));
        ws.shift(60);
        assert_eq!(ws.unused(Time(3 * WINDOW), Nanos(WINDOW)), 90);
    }
}
