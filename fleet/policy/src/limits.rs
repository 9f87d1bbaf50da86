//! What memory a container should have, and when that is changed.
//!
//! **Recommended** is the peak over a window of what was really needed, plus a margin. **Down** goes only what was calm for a
//! window, and by more than a step. **Up** goes at once what is near its limit or waits for memory, to what it had before the
//! agent lowered it. Each such mistake doubles the calm that the next lowering takes. So a container is lowered once a window at
//! most and raised no more often than lowered, whatever its usage does.

use super::peaks::{Peaks, Seen};
use std::time::Duration;

/// What the policy goes by.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Time over which peaks count, and for which a container must be calm.
    pub window: Duration,
    /// Part of the peak that is added to it.
    pub margin: f64,
    /// The least that is ever recommended, bytes.
    pub least: u64,
    /// The most that a limit is raised to, as a multiple of what was there before the agent's first change.
    pub above: f64,
}

/// Lowering a limit by less than this part of it is not worth a change.
const STEP: f64 = 0.1;
/// Nor by less than this, bytes.
const LEAST_STEP: u64 = 16 << 20;
/// A container that needs more than this part of its limit is near it.
const NEAR: f64 = 0.95;
/// A container in which some task waits for memory for this part of the time, while most of its limit is charged, is short: the
/// mark is a tenth, as systemd-oomd's is six tenths and for killing.
const STALLED: f64 = 0.1;
const MOSTLY: f64 = 0.9;
/// A limit is raised by this factor at a time where it may exceed what was there before.
const GROWTH: f64 = 1.5;
/// The calm that is demanded is doubled so often at most: 16 windows.
const MOST_DOUBLINGS: u32 = 4;

/// A container at a look, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// What it really needs.
    pub needed: u64,
    /// What is charged to it.
    pub charged: u64,
    /// What it may use: its limit, or its request where it has no limit.
    pub held: Option<u64>,
    /// Share of the time in which some task waited for memory.
    pub stall: f64,
}

/// What a container should get, bytes: as a VerticalPodAutoscaler has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Recommendation {
    /// Less than this is too little.
    pub lower: u64,
    /// The peak of what was needed, and the margin.
    pub target: u64,
    /// More than this is wasted.
    pub upper: u64,
}

/// A change that should be made: to so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Less.
    Lower(u64),
    /// More.
    Raise(u64),
}

/// A container that is watched.
#[derive(Clone, Debug)]
pub struct Watched {
    peaks: Peaks,
    last: Sample,
    now: Duration,
    /// Since when nothing was changed, and it was not short.
    calm_since: Duration,
    raises: u32,
}

impl Watched {
    /// From now on, a time since some beginning.
    pub fn new(rules: &Rules, now: Duration) -> Self {
        Self { peaks: Peaks::over(rules.window), last: Sample::default(), now, calm_since: now, raises: 0 }
    }

    /// Notes a look.
    pub fn note(&mut self, now: Duration, sample: Sample) {
        self.peaks.note(now, sample.needed, sample.charged);
        (self.now, self.last) = (now, sample);
        if is_short(&sample) {
            self.calm_since = now;
        }
    }

    /// What it should get; none before the first look. What is known of less than a window is told with wider bounds.
    pub fn recommended(&self, rules: &Rules) -> Option<Recommendation> {
        let Seen { usual, peak, charged, share } = self.peaks.seen()?;
        let share = share.max(0.1);
        let with_margin =
            |bytes: u64, by: f64| ((bytes as f64 * (1.0 + rules.margin) * by).round() as u64).max(rules.least);
        let target = with_margin(peak, 1.0);
        let (lower, upper) = (with_margin(usual, share).min(target), with_margin(charged, 1.0 / share).max(target));
        Some(Recommendation { lower, target, upper })
    }

    /// What should be changed of what it holds. `before`: what it held before the agent lowered it. `may_exceed`: whether it may
    /// be raised above that, as far as the rules say.
    pub fn wish(&self, rules: &Rules, held: u64, before: u64, may_exceed: bool) -> Option<Wish> {
        if is_short(&Sample { held: Some(held), ..self.last }) {
            let most = if may_exceed { (before as f64 * rules.above.max(1.0)) as u64 } else { before };
            let to = if held < before { before } else { most.min((held as f64 * GROWTH) as u64) };
            return (to > held).then_some(Wish::Raise(to));
        }
        let calm = rules.window.saturating_mul(1 << self.raises.min(MOST_DOUBLINGS));
        let target = self.recommended(rules)?.target;
        let is_worth_it = held.saturating_sub(target) >= LEAST_STEP.max((held as f64 * STEP) as u64);
        (is_worth_it && self.now.saturating_sub(self.calm_since) >= calm).then_some(Wish::Lower(target))
    }

    /// A change was made or tried: the next lowering takes a new calm window.
    pub fn changed(&mut self, wish: Wish) {
        self.calm_since = self.now;
        if matches!(wish, Wish::Raise(_)) {
            self.raises = self.raises.saturating_add(1);
        }
    }
}

fn is_short(sample: &Sample) -> bool {
    let Some(held) = sample.held else { return false };
    let is_above = |bytes: u64, part: f64| bytes as f64 > held as f64 * part;
    is_above(sample.needed, NEAR) || sample.stall >= STALLED && is_above(sample.charged, MOSTLY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const RULES: Rules = Rules { window: Duration::from_secs(600), margin: 0.15, least: 32 * MIB, above: 2.0 };

    /// A container whose limit is changed at once when the policy wishes.
    struct Container {
        watched: Watched,
        second: u64,
        held: u64,
        before: u64,
        may_exceed: bool,
        wishes: Vec<(u64, Wish)>,
        /// What it needed at each look.
        noted: Vec<(u64, u64)>,
    }

    impl Container {
        fn new(held: u64, may_exceed: bool) -> Self {
            let watched = Watched::new(&RULES, Duration::ZERO);
            Self { watched, second: 0, held, before: held, may_exceed, wishes: Vec::new(), noted: Vec::new() }
        }

        /// Needs so much for so long, in looks 15 s apart.
        fn need(&mut self, needed: u64, seconds: u64) {
            for _ in 0..seconds / 15 {
                self.second += 15;
                let needed = needed.min(self.held);
                self.noted.push((self.second, needed));
                let held = Some(self.held);
                let sample = Sample { needed, charged: needed, held, stall: f64::from(u8::from(needed == self.held)) };
                self.watched.note(Duration::from_secs(self.second), sample);
                if let Some(wish) = self.watched.wish(&RULES, self.held, self.before, self.may_exceed) {
                    self.watched.changed(wish);
                    let (Wish::Lower(to) | Wish::Raise(to)) = wish;
                    self.held = to;
                    self.wishes.push((self.second, wish));
                }
            }
        }
    }

    #[test]
    fn it_is_lowered_after_a_calm_window_and_raised_at_once() {
        let mut it = Container::new(1000 * MIB, false);
        it.need(100 * MIB, 590);
        assert_eq!(it.wishes, []);
        it.need(100 * MIB, 60);
        assert_eq!(it.held, 115 * MIB);
        it.need(112 * MIB, 15);
        assert_eq!((it.held, it.wishes.len()), (1000 * MIB, 2), "to what it had, and at once");
        // The next lowering takes two windows.
        it.need(50 * MIB, 1190);
        assert_eq!(it.wishes.len(), 2);
        it.need(50 * MIB, 60);
        assert_eq!((it.held, it.wishes.len()), (115 * MIB / 2, 3));
        // It is never above what it was.
        it.need(5000 * MIB, 6000);
        assert_eq!(it.held, 1000 * MIB);
    }

    #[test]
    fn it_exceeds_what_it_had_only_where_that_is_allowed() {
        let mut it = Container::new(1000 * MIB, true);
        it.need(5000 * MIB, 15);
        assert_eq!(it.held, 1500 * MIB);
        it.need(5000 * MIB, 600);
        assert_eq!(it.held, 2000 * MIB, "twice, as the rules say");
    }

    #[test]
    fn little_is_not_worth_a_change_and_a_stall_far_below_the_limit_is_not_its_own() {
        let mut it = Container::new(120 * MIB, false);
        it.need(95 * MIB, 3000);
        assert_eq!(it.wishes, []);
        let far = Sample { needed: 10, charged: 50, held: Some(100), stall: 1.0 };
        assert!(!is_short(&far) && is_short(&Sample { charged: 95, ..far }));
        assert!(!is_short(&Sample { held: None, ..far }));
    }

    #[test]
    fn bounds_are_wider_as_long_as_little_was_seen() {
        let mut it = Container::new(1000 * MIB, false);
        it.need(100 * MIB, 60);
        let early = it.watched.recommended(&RULES).unwrap();
        assert_eq!((early.target, early.lower), (115 * MIB, 32 * MIB));
        it.need(100 * MIB, 900);
        let late = it.watched.recommended(&RULES).unwrap();
        assert_eq!(late, Recommendation { lower: 115 * MIB, target: 115 * MIB, upper: 115 * MIB });
        assert!(early.upper > 5 * late.upper);
    }

    proptest! {
        #[test]
        fn it_does_not_oscillate_whatever_usage_does(
            trace in prop::collection::vec((0u64..3000, 15u64..2000), 1..100), may_exceed: bool,
        ) {
            let mut it = Container::new(1000 * MIB, may_exceed);
            for (mib, seconds) in trace {
                it.need(mib * MIB, seconds);
                let most = if may_exceed { 2000 * MIB } else { 1000 * MIB };
                prop_assert!(it.held <= most);
                prop_assert!(it.held >= RULES.least);
            }
            let lowered: Vec<u64> =
                it.wishes.iter().filter(|(_, wish)| matches!(wish, Wish::Lower(_))).map(|(at, _)| *at).collect();
            let raised = it.wishes.len() - lowered.len();
            prop_assert!(lowered.windows(2).all(|two| two[1] - two[0] >= RULES.window.as_secs()));
            // Two steps beyond what it had, where that is allowed.
            let each = if may_exceed { 3 } else { 1 };
            prop_assert!(raised <= (lowered.len() + 1) * each);
            prop_assert!(raised <= lowered.len() || may_exceed);
        }

        #[test]
        fn it_is_never_lowered_below_what_it_needed_within_the_window(
            trace in prop::collection::vec(0u64..900, 40..400),
        ) {
            let mut it = Container::new(1000 * MIB, false);
            trace.into_iter().for_each(|mib| it.need(mib * MIB, 60));
            for &(at, wish) in &it.wishes {
                let Wish::Lower(to) = wish else { continue };
                let window = at - RULES.window.as_secs()..=at;
                let peak = it.noted.iter().filter(|(second, _)| window.contains(second)).map(|(_, needed)| *needed).max();
                prop_assert!(Some(to) > peak, "{} {:?}", to, peak);
            }
        }

        #[test]
        fn any_figures_are_taken_without_harm(needed: u64, charged: u64, held: u64, before: u64, stall: f64, now: u32) {
            let mut it = Watched::new(&RULES, Duration::ZERO);
            it.note(Duration::from_secs(now.into()), Sample { needed, charged, held: Some(held), stall });
            let wish = it.wish(&RULES, held, before, true);
            match wish {
                Some(Wish::Lower(to)) => prop_assert!(to < held),
                Some(Wish::Raise(to)) => prop_assert!(to > held),
                None => {}
            }
        }
    }
}
