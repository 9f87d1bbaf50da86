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
    /// The limit is by the most of a day, and only the request by the window. Else both are the same.
    pub limit_by_day: bool,
}

/// What a pod should have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Its request, by which the scheduler places it.
    pub request: f64,
    /// Its limit, at which the kernel kills it.
    pub limit: f64,
}

/// A request is lowered if it would fall by this part at least. Less is not worth a call to the API server.
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
    of_a_day: Most,
    growth: Most,
    before: [f64; REACTION as usize],
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Leave it.
    Stay,
    /// Raise it.
    Raise,
    /// Lower it, by the handshake.
    Lower,
}

impl Agent {
    /// Nothing was seen yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            step: 0,
            in_use: Most::default(),
            of_a_day: Most::default(),
            growth: Most::default(),
            before: [f64::INFINITY; REACTION as usize],
        }
    }

    /// Bytes in use in the next step; what the pod should have.
    pub fn see(&mut self, in_use: f64) -> Target {
        let least = self.before.iter().copied().fold(in_use, f64::min);
        let growth = self.growth.see(self.step, in_use - least, DAY);
        let most = self.in_use.see(self.step, in_use, self.settings.window);
        let of_a_day = self.of_a_day.see(self.step, in_use, DAY);
        self.before.rotate_left(1);
        self.before[REACTION as usize - 1] = in_use;
        self.step += 1;
        let with_room = |most: f64| most * (1.0 + self.settings.margin) + growth;
        let request = with_room(most);
        Target { request, limit: if self.settings.limit_by_day { with_room(of_a_day) } else { request } }
    }
}

/// What to do with a request that should be `target`.
pub fn decide(now: f64, target: f64) -> Decision {
    if target > now {
        Decision::Raise
    } else if target < now * (1.0 - WORTH_IT) {
        Decision::Lower
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
    fn a_request_falls_a_window_after_the_peak_and_keeps_room_for_the_growth_that_was_seen() {
        for limit_by_day in [false, true] {
            let mut agent = Agent::new(Settings { window: 3, margin: 0.1, limit_by_day });
            assert_eq!(agent.see(100.0).request, 100.0 * 1.1);
            assert_eq!(agent.see(150.0).request, 150.0 * 1.1 + 50.0);
            let high = 200.0 * 1.1 + 100.0; // by 100 within two steps
            assert_eq!(agent.see(200.0), Target { request: high, limit: high });
            for _ in 0..3 {
                assert_eq!(agent.see(100.0).request, high);
            }
            let low = 100.0 * 1.1 + 100.0;
            assert_eq!(agent.see(100.0), Target { request: low, limit: if limit_by_day { high } else { low } });
        }
    }

    #[test]
    fn small_changes_are_not_worth_a_call_but_each_raise_is() {
        assert_eq!(decide(100.0, 95.0), Decision::Stay);
        assert_eq!(decide(100.0, 80.0), Decision::Lower);
        assert_eq!(decide(100.0, 100.5), Decision::Raise);
    }
}
