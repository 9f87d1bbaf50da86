//! What the agent asks for: the most that was in use within a window, a margin, and room for the quickest growth that it has seen.
//!
//! It knows what is in use from the figures that Weir's processes publish. It looks every [`STEP`](crate::load::STEP).

use std::collections::VecDeque;

use crate::load::DAY;

/// How the agent decides.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Steps of which the most in use counts.
    pub window: u32,
    /// What is added to it, as a part of it.
    pub margin: f64,
}

/// A limit is lowered if it would fall by this part at least. Less is not worth a call to the API server.
const WORTH_IT: f64 = 0.1;
/// Growth counts within so many steps: the agent looks, and the kubelet has set the limit before it looks again.
const REACTION: u32 = 2;

/// The most of the last steps.
#[derive(Clone, Debug, Default)]
pub struct Most {
    /// Values that are the most of all from their step on, so that they fall.
    falling: VecDeque<(u32, f64)>,
}

impl Most {
    /// The value of a step, and the most of it and the `window` steps before.
    pub fn see(&mut self, step: u32, value: f64, window: u32) -> f64 {
        while self.falling.back().is_some_and(|&(_, last)| last <= value) {
            self.falling.pop_back();
        }
        self.falling.push_back((step, value));
        while self.falling.front().is_some_and(|&(first, _)| first + window < step) {
            self.falling.pop_front();
        }
        self.falling[0].1
    }
}

/// What the agent remembers of a pod.
#[derive(Clone, Debug)]
pub struct Agent {
    settings: Settings,
    step: u32,
    in_use: Most,
    growth: Most,
    before: [f64; REACTION as usize],
}

/// What to do with a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Leave it.
    Stay,
    /// Raise it to so many bytes.
    Raise(f64),
    /// Lower it to so many bytes, by the handshake.
    Lower(f64),
}

impl Agent {
    /// Nothing was seen yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            step: 0,
            in_use: Most::default(),
            growth: Most::default(),
            before: [f64::INFINITY; REACTION as usize],
        }
    }

    /// Bytes in use in the next step; what the limit should be.
    pub fn see(&mut self, in_use: f64) -> f64 {
        let least = self.before.iter().copied().fold(in_use, f64::min);
        let growth = self.growth.see(self.step, in_use - least, DAY);
        let most = self.in_use.see(self.step, in_use, self.settings.window);
        self.before.rotate_left(1);
        self.before[REACTION as usize - 1] = in_use;
        self.step += 1;
        most * (1.0 + self.settings.margin) + growth
    }
}

/// What to do with a limit that should be `target`.
pub fn decide(limit: f64, target: f64) -> Decision {
    if target > limit {
        Decision::Raise(target)
    } else if target < limit * (1.0 - WORTH_IT) {
        Decision::Lower(target)
    } else {
        Decision::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_window_is_that_of_all_its_values() {
        let values: Vec<f64> = (0..500_u32).map(|i| f64::from(i * 7919 % 101)).collect();
        for window in [0, 1, 7, 60] {
            let mut most = Most::default();
            for (step, &value) in values.iter().enumerate() {
                let begin = step.saturating_sub(window as usize);
                let expected = values[begin..=step].iter().copied().fold(0.0, f64::max);
                assert_eq!(most.see(step as u32, value, window), expected);
            }
        }
    }

    #[test]
    fn a_limit_falls_a_window_after_the_peak_and_keeps_room_for_the_growth_that_was_seen() {
        let mut agent = Agent::new(Settings { window: 3, margin: 0.1 });
        assert_eq!(agent.see(100.0), 110.0_f64.max(100.0 * 1.1));
        assert_eq!(agent.see(150.0), 150.0 * 1.1 + 50.0);
        assert_eq!(agent.see(200.0), 200.0 * 1.1 + 100.0); // by 100 within two steps
        for _ in 0..3 {
            assert_eq!(agent.see(100.0), 200.0 * 1.1 + 100.0);
        }
        assert_eq!(agent.see(100.0), 100.0 * 1.1 + 100.0);
    }

    #[test]
    fn small_changes_are_not_worth_a_call_but_each_raise_is() {
        assert_eq!(decide(100.0, 95.0), Decision::Stay);
        assert_eq!(decide(100.0, 80.0), Decision::Lower(80.0));
        assert_eq!(decide(100.0, 100.5), Decision::Raise(100.5));
    }
}
