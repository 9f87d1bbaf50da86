//! What memory a container should have, and when that is changed.
//!
//! **Recommended** is the peak over a window of what was really needed, plus a margin, plus room for the window's quickest growth
//! within two looks. The kernel kills what grows past its limit before the agent has seen it and the kubelet has acted.
//!
//! **Down** goes only what was calm for a window, and by more than a step. **Up** goes at once what is near its limit or waits
//! for memory, to what it had before the agent lowered it. Near is also what would pass its limit by growing as it once did.
//! Each such mistake doubles the calm that the next lowering takes. So a container is lowered once a window at most, whatever
//! its usage does. It is raised no more often than lowered where nothing may exceed what it had.
//!
//! A **request** may follow a shorter window than the limit, where it may be below the limit. It says how much of its node a
//! container takes, and nobody has to give anything for it. So it rises at once, and falls once a window of its own at most.

use super::peaks::{Peaks, Seen};
use std::time::Duration;

/// What the policy goes by.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Time over which peaks count, and for which a container must be calm.
    pub window: Duration,
    /// Time over which peaks count for a request that may be below its limit; none: it goes by the limit.
    pub requests: Option<Duration>,
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
/// Looks between a growth and a limit that was raised for it: the agent sees it at the first, and the kubelet has acted by the second.
const REACTION: usize = 2;
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
    /// The peak of what was needed, the margin, and room for growth.
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
    /// Another request, below the limit that there is.
    Request(u64),
}

/// What is to be known of a container by an agent that has not watched it yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Past {
    /// How often it was raised.
    pub raises: u32,
    /// The most that it grew by within [`REACTION`] looks of the window, bytes.
    pub growth: u64,
}

/// A container that is watched.
#[derive(Clone, Debug)]
pub struct Watched {
    peaks: Peaks,
    /// Those that requests go by.
    recent: Option<Peaks>,
    /// Those of growth within [`REACTION`] looks.
    growth: Peaks,
    /// What was needed at the last looks.
    before: [u64; REACTION],
    last: Sample,
    now: Duration,
    /// Since when nothing was changed, and it was not short.
    calm_since: Duration,
    /// When the request was changed last.
    requested: Duration,
    raises: u32,
    /// What is known of before was said, or nothing was.
    is_past_known: bool,
}

impl Watched {
    /// From now on, a time since some beginning.
    pub fn new(rules: &Rules, now: Duration) -> Self {
        Self {
            peaks: Peaks::over(rules.window),
            recent: rules.requests.map(Peaks::over),
            growth: Peaks::over(rules.window),
            before: [u64::MAX; REACTION],
            last: Sample::default(),
            now,
            calm_since: now,
            requested: now,
            raises: 0,
            is_past_known: false,
        }
    }

    /// What another agent is to know of it.
    pub fn past(&self) -> Past {
        Past { raises: self.raises, growth: self.growth.seen().map_or(0, |seen| seen.peak) }
    }

    /// Takes over what another agent knew of it, once. Its growth is forgotten with this window's.
    pub fn recall(&mut self, past: Past) {
        if !std::mem::replace(&mut self.is_past_known, true) {
            self.raises = self.raises.saturating_add(past.raises);
            self.growth.note(self.now, past.growth, 0);
        }
    }

    /// Notes a look.
    pub fn note(&mut self, now: Duration, sample: Sample) {
        self.peaks.note(now, sample.needed, sample.charged);
        let least = self.before.into_iter().fold(sample.needed, u64::min);
        self.growth.note(now, sample.needed - least, 0);
        self.before.rotate_left(1);
        self.before[REACTION - 1] = sample.needed;
        if let Some(recent) = &mut self.recent {
            recent.note(now, sample.needed, sample.charged);
        }
        (self.now, self.last) = (now, sample);
        if self.is_short(&sample) {
            self.calm_since = now;
        }
    }

    /// What it should get; none before the first look. What is known of less than a window is told with wider bounds.
    pub fn recommended(&self, rules: &Rules) -> Option<Recommendation> {
        let Seen { usual, peak, charged, share } = self.peaks.seen()?;
        let share = share.max(0.1);
        let growth = self.growth.seen()?.peak;
        let target = rules.with_margin(peak, 1.0).saturating_add(growth);
        let lower = rules.with_margin(usual, share).min(target);
        let upper = rules.with_margin(charged, 1.0 / share).max(target);
        Some(Recommendation { lower, target, upper })
    }

    /// Whether it was watched for a window, so that what is recommended is known and not guessed.
    pub fn is_known(&self) -> bool {
        self.peaks.seen().is_some_and(|seen| seen.share >= 1.0)
    }

    /// When it was looked at last.
    pub fn last(&self) -> Duration {
        self.now
    }

    /// What it should ask for beside a limit of `limit` bytes; none before the first look.
    pub fn asks(&self, rules: &Rules, limit: u64) -> Option<u64> {
        // Without a window of its own a request is what was needed, and the limit has the margin.
        let Some(recent) = &self.recent else { return Some((limit as f64 / (1.0 + rules.margin)) as u64) };
        Some(rules.with_margin(recent.seen()?.peak, 1.0))
    }

    /// What should be changed of the limit `held`, and of `request`, if that may be below it. `before`: what it held before the
    /// agent lowered it. `may_exceed`: whether it may be raised above that, as far as the rules say.
    pub fn wish(&self, rules: &Rules, held: u64, request: Option<u64>, before: u64, may_exceed: bool) -> Option<Wish> {
        if self.is_short(&Sample { held: Some(held), ..self.last }) {
            let most = if may_exceed { (before as f64 * rules.above.max(1.0)) as u64 } else { before };
            let to = if held < before { before } else { most.min((held as f64 * GROWTH) as u64) };
            if to > held {
                return Some(Wish::Raise(to));
            }
            return self.wish_request(rules, held, request?);
        }
        let calm = rules.window.saturating_mul(1 << self.raises.min(MOST_DOUBLINGS));
        let target = self.recommended(rules)?.target;
        if is_worth_it(held, target) && self.now.saturating_sub(self.calm_since) >= calm {
            return Some(Wish::Lower(target));
        }
        self.wish_request(rules, held, request?)
    }

    fn is_short(&self, sample: &Sample) -> bool {
        let Some(held) = sample.held else { return false };
        let is_above = |bytes: u64, part: f64| bytes as f64 > held as f64 * part;
        let growth = self.growth.seen().map_or(0, |seen| seen.peak);
        is_above(sample.needed, NEAR)
            || is_above(sample.needed.saturating_add(growth), 1.0)
            || sample.stall >= STALLED && is_above(sample.charged, MOSTLY)
    }

    /// What should be changed of `request` alone, beside a limit of `limit` bytes that stays.
    pub fn wish_request(&self, rules: &Rules, limit: u64, request: u64) -> Option<Wish> {
        let window = rules.requests?;
        let to = self.asks(rules, limit)?.min(limit);
        let is_over = self.now.saturating_sub(self.requested) >= window;
        let falls = is_over && is_worth_it(request, to);
        (self.last.needed > request && to > request || falls).then_some(Wish::Request(to))
    }

    /// A change was made or tried: the next lowering takes a new calm window.
    pub fn changed(&mut self, wish: Wish) {
        self.requested = self.now;
        match wish {
            Wish::Request(_) => return,
            Wish::Raise(_) => self.raises = self.raises.saturating_add(1),
            Wish::Lower(_) => {}
        }
        self.calm_since = self.now;
    }
}

impl Rules {
    /// So many bytes times `by`, with the margin, and no less than the least.
    fn with_margin(&self, bytes: u64, by: f64) -> u64 {
        ((bytes as f64 * (1.0 + self.margin) * by).round() as u64).max(self.least)
    }
}

/// Whether it is worth a change to lower what is held to `target`.
fn is_worth_it(held: u64, target: u64) -> bool {
    held.saturating_sub(target) >= LEAST_STEP.max((held as f64 * STEP) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const RULES: Rules =
        Rules { window: Duration::from_secs(600), requests: None, margin: 0.15, least: 32 * MIB, above: 2.0 };

    /// A container whose limit is changed at once when the policy wishes.
    struct Container {
        rules: Rules,
        watched: Watched,
        second: u64,
        held: u64,
        request: u64,
        before: u64,
        may_exceed: bool,
        wishes: Vec<(u64, Wish)>,
        /// What it needed at each look.
        noted: Vec<(u64, u64)>,
    }

    impl Container {
        fn new(held: u64, may_exceed: bool) -> Self {
            Self::of(RULES, held, may_exceed)
        }

        fn of(rules: Rules, held: u64, may_exceed: bool) -> Self {
            let watched = Watched::new(&rules, Duration::ZERO);
            let (wishes, noted) = (Vec::new(), Vec::new());
            Self { rules, watched, second: 0, held, request: held, before: held, may_exceed, wishes, noted }
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
                let request = Some(self.request);
                if let Some(wish) = self.watched.wish(&self.rules, self.held, request, self.before, self.may_exceed) {
                    self.watched.changed(wish);
                    match wish {
                        Wish::Lower(to) | Wish::Raise(to) => self.held = to,
                        Wish::Request(to) => self.request = to,
                    }
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
    fn a_limit_has_room_for_the_quickest_growth_of_the_window() {
        let mut it = Container::new(1000 * MIB, false);
        for mib in [100, 100, 160, 200, 100, 60] {
            it.need(mib * MIB, 15);
        }
        assert_eq!(it.watched.recommended(&RULES).unwrap().target, 230 * MIB + 100 * MIB, "100 within two looks");
        it.need(60 * MIB, 600);
        assert_eq!(it.held, 330 * MIB);
        it.need(60 * MIB, 700);
        assert_eq!(it.held, 69 * MIB, "forgotten with the peak");
    }

    #[test]
    fn the_next_agent_knows_how_often_it_was_raised_and_how_it_grew() {
        let mut it = Container::new(1000 * MIB, false);
        it.need(60 * MIB, 60);
        it.need(160 * MIB, 15);
        it.need(60 * MIB, 540);
        assert_eq!((it.held, it.watched.past()), (230 * MIB + 54 * MIB, Past { raises: 0, growth: 100 * MIB }));
        // Another agent, and a burst like the one before: what it needs is far below the limit, and would pass it.
        let (before, held) = (it.before, it.held);
        let again = |past: Option<Past>| {
            let mut it = Container::new(held, false);
            it.before = before;
            it.need(190 * MIB, 15);
            past.into_iter().for_each(|past| it.watched.recall(past));
            it.need(190 * MIB, 15);
            it
        };
        assert_eq!(again(None).held, held);
        let mut raised = again(Some(Past { raises: 1, growth: 100 * MIB }));
        assert_eq!(raised.held, before);
        // Said once: the second raise asks for four windows of calm.
        raised.watched.recall(Past { raises: 9, growth: 0 });
        assert_eq!(raised.watched.past().raises, 2);
        raised.need(60 * MIB, 2350);
        assert_eq!(raised.held, before);
        raised.need(60 * MIB, 90);
        assert!(raised.held < before);
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
        let new = Watched::new(&RULES, Duration::ZERO);
        assert!(!new.is_short(&far) && new.is_short(&Sample { charged: 95, ..far }));
        assert!(!new.is_short(&Sample { held: None, ..far }));
    }

    #[test]
    fn a_request_follows_a_window_of_its_own_and_the_limit_stays() {
        let rules = Rules { window: Duration::from_secs(6000), requests: Some(Duration::from_secs(120)), ..RULES };
        let mut it = Container::of(rules, 1000 * MIB, false);
        it.need(100 * MIB, 105);
        assert_eq!(it.wishes, []);
        it.need(100 * MIB, 15);
        assert_eq!((it.request, it.held), (115 * MIB, 1000 * MIB));
        // Up at once, down once the peak is two minutes old, and by no less than a step.
        it.need(200 * MIB, 15);
        assert_eq!(it.request, 230 * MIB);
        it.need(100 * MIB, 105);
        assert_eq!(it.request, 230 * MIB);
        it.need(100 * MIB, 60);
        assert_eq!((it.request, it.wishes.len()), (115 * MIB, 3));
        it.need(95 * MIB, 600);
        assert_eq!(it.wishes.len(), 3);
        // No higher than the limit, which has its own window.
        it.need(940 * MIB, 15);
        assert_eq!((it.request, it.held), (1000 * MIB, 1000 * MIB));
        it.need(100 * MIB, 4000);
        assert_eq!((it.request, it.held), (115 * MIB, 1000 * MIB));
        it.need(100 * MIB, 6000);
        assert_eq!(it.held, 115 * MIB);
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
        fn any_figures_are_taken_without_harm(
            needed: u64, charged: u64, held: u64, request: u64, before: u64, stall: f64, now: u32,
        ) {
            let rules = Rules { requests: Some(Duration::from_secs(60)), ..RULES };
            let mut it = Watched::new(&rules, Duration::ZERO);
            it.note(Duration::from_secs(now.into()), Sample { needed, charged, held: Some(held), stall });
            let wish = it.wish(&rules, held, Some(request), before, true);
            match wish {
                Some(Wish::Lower(to)) => prop_assert!(to < held),
                Some(Wish::Raise(to)) => prop_assert!(to > held),
                Some(Wish::Request(to)) => prop_assert!(to <= held && to != request),
                None => {}
            }
        }
    }
}
