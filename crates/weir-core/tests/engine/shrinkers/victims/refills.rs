//! Caches that their misses fill again: below one limit they come to rest, and do not swing.

use super::*;
use weir_core::base::time::Time;

/// Time between two steps, ms.
const STEP_MS: u64 = 20;
/// Steps of a shortage: in the first ones others take memory, or give it back. The rest is longer than two reliefs take.
const STEPS: [usize; 2] = [100, 250];
/// Bytes that a miss brings in.
const ENTRY: f64 = 16384.0;

/// A process of which the cache's misses fill it while it may grow. Of its hits x^exponent are left with the part x of `full`
/// bytes.
struct Refilling {
    process: Process,
    turn: Turn,
    full: f64,
    exponent: f64,
    /// Look-ups a second, of which all hit with all bytes, and what a miss takes, ns.
    lookups: f64,
    miss_ns: f64,
    /// Scanned, and not relieved since: how often relief was told before.
    reliefs: u32,
    is_pressed: bool,
    /// Bytes at the last turn, whether the cache shrank then, and the turns from shrinking to growth since the shortage began.
    turned_at: usize,
    shrinks: bool,
    turns: u32,
}

impl Refilling {
    fn bytes(&self) -> usize {
        self.process.bytes.load(SeqCst)
    }

    /// Time that hits save in each second, ns, with so many bytes.
    fn work(&self, bytes: f64) -> f64 {
        self.lookups * (bytes / self.full).min(1.0).powf(self.exponent) * self.miss_ns
    }

    /// Writes the curve as the process itself does.
    fn publish(&self) {
        let bytes = self.bytes() as u64;
        let hits = self.lookups * (self.bytes() as f64 / self.full).powf(self.exponent) * 1000.0;
        self.process.publish_row(EvictableRow {
            bytes,
            spare_bytes: bytes,
            hit_rate: hits as u64,
            return_rate: (hits * self.exponent / 3.333).max(1.0) as u64,
            miss_ns: self.miss_ns as u64,
            ..EvictableRow::default()
        });
    }

    /// Misses bring entries in; where the cache may not grow others go for them. Returns bytes that it grew by.
    fn fill(&mut self) -> usize {
        let missed = 1.0 - (self.bytes() as f64 / self.full).powf(self.exponent);
        let wanted = self.lookups * missed * ENTRY * STEP_MS as f64 / 1000.0;
        let wanted = (wanted as usize).min(self.full as usize - self.bytes());
        let reliefs = self.process.told.relieved.load(SeqCst);
        self.is_pressed &= reliefs == self.reliefs;
        self.reliefs = reliefs;
        if wanted == 0 || self.is_pressed || !self.process.heap.reclaim().may_grow(wanted) {
            return 0;
        }
        self.process.bytes.fetch_add(wanted, SeqCst);
        self.process.heap.platform().elsewhere.1.fetch_add(wanted as u64, SeqCst);
        wanted
    }

    /// Counts a turn, of more than a hundredth of the cache.
    fn note(&mut self) {
        let (bytes, least) = (self.bytes(), (self.full / 100.0) as usize);
        if self.shrinks {
            self.turned_at = self.turned_at.min(bytes);
            if bytes > self.turned_at + least {
                (self.shrinks, self.turned_at) = (false, bytes);
                self.turns += 1;
            }
        } else {
            self.turned_at = self.turned_at.max(bytes);
            if bytes + least < self.turned_at {
                (self.shrinks, self.turned_at) = (true, bytes);
            }
        }
    }

    /// What the background thread does in a step: a reading, as often as where much is taken; the balancer's work; relief.
    fn tend(&mut self, room: impl Fn(usize) -> Room) {
        self.process.told.bytes.store(self.bytes(), SeqCst);
        let reclaim = self.process.heap.reclaim();
        let read = || _ = reclaim.read_room(room(self.process.bytes.load(SeqCst)));
        let now = self.process.heap.platform().now();
        read();
        if reclaim.is_balancer_asked() {
            self.publish();
        }
        let given = balances_by_readings(&self.process, &mut self.turn, read);
        if given > 0 {
            self.is_pressed = true;
            // As it tells of its own pages.
            let told = &self.process.heap.platform().stats().given_back[Cause::Limit as usize];
            told.fetch_add(given as u64, Relaxed);
            self.publish();
        }
        if reclaim.relief_due().is_some_and(|at: Time| now >= at) {
            read();
            reclaim.relieve_if_due();
        }
        serve(self.process.heap, self.process.cache.entry().queue());
    }
}

/// Bytes of each when so many are there in all, and go where they cost least.
fn best(all: &[Refilling], kept: f64) -> Vec<f64> {
    let mut bytes: Vec<f64> = all.iter().map(|one| one.full).collect();
    let step = (bytes.iter().sum::<f64>() - kept) / 1000.0;
    for _ in 0..1000 {
        let loss = |at: usize| match bytes[at] > step {
            true => all[at].work(bytes[at]) - all[at].work(bytes[at] - step),
            false => f64::INFINITY,
        };
        let least = (0..bytes.len()).min_by(|&one, &two| loss(one).total_cmp(&loss(two))).unwrap();
        bytes[least] -= step;
    }
    bytes
}

fn hundred() -> Vec<Refilling> {
    // Any sequence of numbers does.
    let mut state = 1u64;
    let mut random = |from: f64, to: f64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (to - from) * ((state >> 33) as f64 / (1u64 << 31) as f64)
    };
    let refilling = |process: Process| {
        let full = random(4e6, 60e6);
        process.bytes.store(full as usize, SeqCst);
        let (exponent, lookups, miss_ns) = (random(0.1, 0.9), random(100.0, 2000.0), random(1e4, 1e7));
        let (turn, turned_at) = (Turn::default(), full as usize);
        let (reliefs, turns, is_pressed, shrinks) = (0, 0, false, false);
        Refilling { process, turn, full, exponent, lookups, miss_ns, reliefs, is_pressed, turned_at, shrinks, turns }
    };
    processes((0..100).map(|_| 1)).into_iter().map(refilling).collect()
}

#[test]
fn a_hundred_caches_that_refill_come_to_rest_below_one_limit() {
    let mut all = hundred();
    let full: usize = all.iter().map(Refilling::bytes).sum();
    let limit = (full + full / 10).next_multiple_of(PAGEBLOCK);
    for one in &all {
        let row = ZoneRow { capacity: limit as u64, ..ZoneRow::default() };
        one.process.heap.platform().stats().zones.write(|add| add(row));
        one.publish();
    }
    let mut others = 0usize;
    // What others take below the limit: it changes in two seconds, and stays for five.
    for percent in [50, 30, 70, 10] {
        let (from, to) = (others, full * percent / 100);
        all.iter_mut().for_each(|one| (one.turns, one.shrinks, one.turned_at) = (0, false, one.bytes()));
        let mut sum: usize = all.iter().map(Refilling::bytes).sum();
        for step in 0..STEPS[0] + STEPS[1] {
            let part = step.min(STEPS[0]) as f64 / STEPS[0] as f64;
            others = (from as f64 + (to as f64 - from as f64) * part) as usize;
            for one in &mut all {
                one.process.heap.platform().pass_ms(STEP_MS);
                let before = one.bytes();
                one.fill();
                let rest = sum - before + others;
                one.tend(|own| Room::shared(limit as u64, (rest + own) as u64));
                sum = sum - before + one.bytes();
                one.note();
            }
        }
        let most = all.iter().map(|one| one.turns).max().unwrap();
        assert!(most <= 1, "{percent} %: a cache was filled and shrunk {most} times");
        let now: f64 = all.iter().map(|one| one.work(one.bytes() as f64)).sum();
        let oracle: f64 = best(&all, sum as f64).iter().zip(&all).map(|(&bytes, one)| one.work(bytes)).sum();
        // Where little is left those that are awake give all that is missing after 20 ms: a kill may be near.
        assert!(now >= 0.5 * oracle, "{percent} %: {} of the best", now / oracle);
    }
    end(all.into_iter().map(|one| one.process).collect());
}
