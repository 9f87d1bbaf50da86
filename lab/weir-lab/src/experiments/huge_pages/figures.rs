//! What is measured of a run, and how each figure of it is named and shown.

use crate::harness::tables::{mib, short};

/// How long after the frees the process is looked at last, seconds: a calm window or two of Weir's (1 s each), and what
/// most others' decay times come to.
pub const IDLE: f64 = 3.0;

/// A heap at its peak: what it holds above the program without it, and what the program said.
pub struct Peak {
    /// Resident bytes.
    pub rss: f64,
    /// Of them, in huge pages.
    pub huge: f64,
    /// Processor time of the fill, ns a page of the blocks.
    pub fill_ns: f64,
    /// Of the walk, ns a step.
    pub step_ns: f64,
}

/// All of one run.
pub struct Run {
    /// After the first fill and after the second.
    pub peaks: [Peak; 2],
    /// Processor time of the frees between them, ns a page.
    pub free_ns: f64,
    /// What stays resident [`IDLE`] after three of four blocks were freed, bytes above the program without a heap.
    pub rest: f64,
}

impl Peak {
    /// The share of the heap in huge pages, percent.
    fn share(&self) -> f64 {
        if self.rss > 0.0 { 100.0 * self.huge / self.rss } else { 0.0 }
    }
}

/// One figure.
pub struct Figure {
    /// In JSON.
    pub key: &'static str,
    /// In tables.
    pub title: &'static str,
    /// Of a run.
    pub of: fn(&Run) -> f64,
    /// As people read it.
    pub show: fn(f64) -> String,
    /// Whether it is a cost, of which less is better. Huge pages are none, and no gain by themselves.
    pub is_cost: bool,
}

const fn cost(key: &'static str, title: &'static str, of: fn(&Run) -> f64, show: fn(f64) -> String) -> Figure {
    Figure { key, title, of, show, is_cost: true }
}

const fn share(key: &'static str, title: &'static str, of: fn(&Run) -> f64) -> Figure {
    Figure { key, title, of, show: short, is_cost: false }
}

/// All of them, in the order of the tables.
pub const FIGURES: [Figure; 9] = [
    cost("first_fill_ns", "first fill, ns a page", |run| run.peaks[0].fill_ns, short),
    share("first_share", "first peak: in huge pages, %", |run| run.peaks[0].share()),
    cost("first_step_ns", "first walk, ns a step", |run| run.peaks[0].step_ns, short),
    cost("free_ns", "frees, ns a page", |run| run.free_ns, short),
    cost("second_fill_ns", "second fill, ns a page", |run| run.peaks[1].fill_ns, short),
    share("second_share", "second peak: in huge pages, %", |run| run.peaks[1].share()),
    cost("second_step_ns", "second walk, ns a step", |run| run.peaks[1].step_ns, short),
    cost("peak", "peak, MiB", |run| run.peaks[0].rss.max(run.peaks[1].rss), mib),
    cost("rest", "3 s after the frees, MiB", |run| run.rest, mib),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_peaks_that_they_name() {
        let peak = |rss: f64, fill_ns: f64| Peak { rss, huge: 50.0, fill_ns, step_ns: 2.0 * fill_ns };
        let run = Run { peaks: [peak(200.0, 1.0), peak(100.0, 3.0)], free_ns: 5.0, rest: 7.0 };
        let values: Vec<f64> = FIGURES.iter().map(|figure| (figure.of)(&run)).collect();
        assert_eq!(values, [1.0, 25.0, 2.0, 5.0, 3.0, 50.0, 6.0, 200.0, 7.0]);
        let none = Peak { rss: 0.0, huge: 0.0, fill_ns: 0.0, step_ns: 0.0 };
        assert_eq!(none.share(), 0.0);
        let mut keys: Vec<&str> = FIGURES.iter().map(|figure| figure.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), FIGURES.len());
    }
}
