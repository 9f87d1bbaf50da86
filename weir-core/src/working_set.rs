//! How much of what is free will be wanted again: two estimates, one for pages and one for caches.

/// The highest value over the last one to two windows.
///
/// ```
/// let mut peak = weir_core::working_set::Peak::new();
/// peak.note(10);
/// assert_eq!(peak.roll(3), 10); // 10 was seen in the window that ends here
/// assert_eq!(peak.roll(3), 3); // and not in this one
/// ```
#[derive(Debug)]
pub struct Peak {
    now: usize,
    last: usize,
}

impl Peak {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Self { now: 0, last: 0 }
    }

    /// Notes a value.
    #[inline]
    pub fn note(&mut self, value: usize) {
        self.now = self.now.max(value);
    }

    /// Ends the window; returns its peak. The next begins at `value`.
    pub fn roll(&mut self, value: usize) -> usize {
        self.last = core::mem::replace(&mut self.now, value);
        self.last
    }

    /// The highest value of the last window and of this one so far.
    pub fn high(&self) -> usize {
        self.now.max(self.last)
    }
}

impl Default for Peak {
    fn default() -> Self {
        Self::new()
    }
}

/// UMA's working-set estimate of a cache (001 and FACTS B), in buckets.
///
/// `max >= items >= batch_min >= min` holds always. Demand is a batch of allocations: the fall of `items` from a
/// maximum. Frees alone raise `max` and `batch_min` together and so are no demand. Reclaim moves all bounds with
/// `items` ([`WorkingSet::shift`]): its own traffic is not demand either.
#[derive(Debug, Clone)]
pub struct WorkingSet {
    /// Items now.
    pub items: u32,
    /// Highest since the last update.
    pub max: u32,
    /// Lowest since the last update.
    pub min: u32,
    /// Lowest since `max` was reached.
    pub batch_min: u32,
    /// The estimate.
    pub size: u32,
}

impl WorkingSet {
    /// An empty cache that nobody wanted anything of.
    pub const fn new() -> Self {
        Self { items: 0, max: 0, min: 0, batch_min: 0, size: 0 }
    }

    /// An item came in.
    pub fn put(&mut self) {
        self.items += 1;
        if self.items > self.max {
            // A new maximum ends the batch that fell from the last one.
            self.size = self.size.max(self.max - self.batch_min);
            self.max = self.items;
            self.batch_min = self.items;
        }
    }

    /// An item was taken by demand.
    pub fn get(&mut self) {
        self.items -= 1;
        self.batch_min = self.batch_min.min(self.items);
        self.min = self.min.min(self.items);
    }

    /// Reclaim took `n` items.
    pub fn shift(&mut self, n: u32) {
        self.items -= n;
        self.max = self.max.saturating_sub(n).max(self.items);
        self.min = self.min.saturating_sub(n);
        self.batch_min = self.batch_min.saturating_sub(n).max(self.min);
    }

    /// Ends a period: `size = max(3/4 size, max - batch_min)`; the bounds close in on `items`.
    pub fn update(&mut self) -> u32 {
        self.size = (self.size * 3 / 4).max(self.max - self.batch_min);
        self.max = self.items + (self.max - self.items) / 2;
        self.min = self.items;
        self.batch_min = self.items;
        self.size
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

    proptest! {
        #[test]
        fn bounds_hold_over_any_history(steps in prop::collection::vec(0u8..10, 0..400)) {
            let mut ws = WorkingSet::new();
            for step in steps {
                match step {
                    0..=4 => ws.put(),
                    5..=7 if ws.items > 0 => ws.get(),
                    8 => ws.shift(ws.items / 2),
                    9 => { ws.update(); }
                    _ => {}
                }
                prop_assert!(ws.max >= ws.items && ws.items >= ws.batch_min && ws.batch_min >= ws.min, "{ws:?}");
            }
        }
    }

    #[test]
    fn frees_alone_are_no_demand_and_a_batch_is() {
        let mut ws = WorkingSet::new();
        (0..100).for_each(|_| ws.put());
        assert_eq!(ws.update(), 0);
        (0..40).for_each(|_| ws.get());
        (0..40).for_each(|_| ws.put());
        assert_eq!(ws.update(), 40);
        assert_eq!(ws.update(), 30);
    }
}
