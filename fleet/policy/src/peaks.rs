//! The most that a container needed, over a window that moves.

use std::collections::VecDeque;
use std::time::Duration;

/// Parts of a window: what is older than a window goes a part at a time.
const PARTS: u32 = 12;

/// The most of a part of the window, bytes.
#[derive(Clone, Copy, Debug)]
struct Part {
    number: u64,
    needed: u64,
    charged: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Peaks {
    part: Duration,
    begun: Option<Duration>,
    now: Duration,
    parts: VecDeque<Part>,
}

/// What the peaks say, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The median of the parts' peaks.
    pub usual: u64,
    /// The highest peak.
    pub peak: u64,
    /// The highest that was charged, what was spare included.
    pub charged: u64,
    /// How much of the window was seen: 0 to 1.
    pub share: f64,
}

impl Peaks {
    /// Over such a window.
    pub fn over(window: Duration) -> Self {
        Self { part: window / PARTS, begun: None, now: Duration::ZERO, parts: VecDeque::new() }
    }

    /// Notes what is needed and charged now, a time since some beginning.
    pub fn note(&mut self, now: Duration, needed: u64, charged: u64) {
        self.begun.get_or_insert(now);
        self.now = now;
        let number = (now.as_nanos() / self.part.as_nanos().max(1)) as u64;
        match self.parts.back_mut() {
            Some(last) if last.number == number => {
                (last.needed, last.charged) = (last.needed.max(needed), last.charged.max(charged));
            }
            _ => self.parts.push_back(Part { number, needed, charged }),
        }
        while self.parts.front().is_some_and(|first| first.number + u64::from(PARTS) < number) {
            self.parts.pop_front();
        }
    }

    /// None before the first look.
    pub fn seen(&self) -> Option<Seen> {
        let mut needed: Vec<u64> = self.parts.iter().map(|part| part.needed).collect();
        needed.sort_unstable();
        let seen = self.now.saturating_sub(self.begun?).as_secs_f64();
        Some(Seen {
            usual: needed[needed.len() / 2],
            peak: *needed.last()?,
            charged: self.parts.iter().map(|part| part.charged).max()?,
            share: (seen / (self.part * PARTS).as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut peaks = Peaks::over(Duration::from_secs(120));
        assert_eq!(peaks.seen(), None);
        let mut at = |second: u64, needed: u64| {
            peaks.note(Duration::from_secs(second), needed, needed * 2);
            peaks.seen().unwrap()
        };
        assert_eq!(at(1000, 50), Seen { usual: 50, peak: 50, charged: 100, share: 0.0 });
        assert_eq!(at(1060, 7), Seen { usual: 50, peak: 50, charged: 100, share: 0.5 });
        assert_eq!(at(1065, 9), Seen { usual: 50, peak: 50, charged: 100, share: 65.0 / 120.0 });
        assert_eq!(at(1129, 5).peak, 50, "a whole window is kept");
        assert_eq!(at(1140, 5), Seen { usual: 5, peak: 9, charged: 18, share: 1.0 });
    }
}
