//! A process of a group: what it holds, and what it can be asked for.

use crate::figures::{less, rows};
use crate::inspect::asked::{self, figure};
use crate::inspect::control::{Control, OTHERS_ARE_SLOW};
use crate::inspect::page::{Inspected, Missing};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_core::base::cost::Cost;
use weir_core::telemetry::tables::EvictableRow;

/// Rounds in which a process above its target does not get on, after which nothing more is expected of it.
pub const ROUNDS: u32 = 4;
/// As many of one that has got on: where its shrinkers take long, it stands still for a second now and then.
const PAUSE: u32 = 12;
/// A process gets on that has lost so many bytes more: the kernel does not count each page at once.
const STEP: u64 = 64 << 10;
/// The least target, bytes: none asks a process to go away.
const LEAST: u64 = 1 << 20;
/// What an evictable cache holds beside the weight of its entries: for each, bytes, and of all, 1 / BESIDE_SHARE.
const BESIDE_ENTRY: u64 = 64;
const BESIDE_SHARE: u64 = 8;

/// The memory of a process, bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The process's number.
    pub pid: i32,
    /// The process's name.
    pub command: String,
    /// Resident now.
    pub resident_bytes: u64,
    /// Less than when it was asked first.
    pub given_bytes: u64,
    /// Weir's heap: in use by the program; none where it cannot be asked.
    pub live_bytes: Option<u64>,
    /// Weir's heap: free.
    pub idle_bytes: Option<u64>,
    /// Why it gives nothing: it has no Weir, or does not answer.
    pub not_asked: Option<String>,
}

/// See the module.
pub struct Member {
    pid: i32,
    command: String,
    /// Resident when it was asked first.
    before: u64,
    inspected: Option<Inspected>,
    channel: Result<Control, String>,
    /// Nothing is asked of it after that.
    until: Option<Instant>,
    target: Option<u64>,
    pace: Pace,
    /// Bytes that it has in use, and cannot give.
    kept: u64,
}

/// What a process has.
#[derive(Clone, Debug, Default)]
pub struct Stock {
    /// The parts of its cost curve, the cheapest first, of no more than is resident.
    pub parts: Vec<Cost>,
    /// Bytes that it may be able to give.
    pub most: u64,
}

/// How a process gets on towards its target.
struct Pace {
    /// Resident at the end of the last round in which it got on.
    lowest: u64,
    /// Rounds since then in which it was above its target. 0: it is not.
    missed: u32,
    has_fallen: bool,
}

impl Pace {
    const NEW: Self = Self { lowest: u64::MAX, missed: 0, has_fallen: false };

    /// A round ends. One that needs many, as its shrinkers take long, still gets on.
    fn note(&mut self, resident: u64, target: u64) {
        self.missed = if resident <= target {
            0
        } else if resident <= self.lowest.saturating_sub(STEP) {
            self.has_fallen = self.lowest < u64::MAX;
            self.lowest = resident;
            1
        } else {
            self.missed.saturating_add(1)
        };
    }

    fn gets_on(&self) -> bool {
        self.missed < if self.has_fallen { PAUSE } else { ROUNDS }
    }
}

impl Member {
    /// It may take `patience` for each answer, and is asked nothing after `until`: thousands that do not answer would take minutes.
    /// None: it has ended, or has no memory.
    pub fn of(pid: i32, patience: Duration, until: Option<Instant>) -> Option<Self> {
        let command = procfs::process::Process::new(pid).ok()?.stat().ok()?.comm;
        let inspected = Inspected::narrow(pid);
        let before = resident(pid, inspected.as_ref().ok());
        let connect = |inspected: &Inspected| {
            if is_late(until) {
                return Err(OTHERS_ARE_SLOW.to_owned());
            }
            asked::channel(inspected, &inspected.page().map_err(|why| why.to_string())?, patience)
        };
        let channel = inspected.as_ref().map_err(Missing::to_string).and_then(connect);
        let (inspected, target, pace) = (inspected.ok(), None, Pace::NEW);
        let member = Self { pid, command, before, inspected, channel, until, target, pace, kept: 0 };
        (before > 0).then_some(member)
    }

    /// Why it cannot be asked.
    pub fn silent(&self) -> Option<String> {
        self.channel.as_ref().err().cloned()
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn resident(&self) -> u64 {
        resident(self.pid, self.inspected.as_ref())
    }

    /// Has it release all that is free.
    pub fn drain(&mut self) {
        self.ask("drain");
    }

    /// Asks for `bytes` less than now.
    pub fn take(&mut self, bytes: u64) {
        self.aim(self.resident().saturating_sub(bytes));
    }

    /// Asks for no more than `bytes` besides what it holds now.
    pub fn hold(&mut self, bytes: u64) {
        self.aim(self.resident().saturating_add(bytes));
    }

    fn aim(&mut self, target: u64) {
        let target = target.max(LEAST);
        self.ask(&format!("target {target}"));
        (self.target, self.pace) = (Some(target), Pace::NEW);
    }

    /// Whether it can be asked, and nothing was asked of it.
    pub fn is_free(&self) -> bool {
        self.channel.is_ok() && self.target.is_none()
    }

    /// A round ends: bytes that it is still to give of what it was asked for. Of one that does not get on nothing is expected.
    pub fn owes(&mut self) -> u64 {
        let Some(target) = self.target else { return 0 };
        let resident = self.resident();
        self.pace.note(resident, target);
        if self.may_give() { resident.saturating_sub(target) } else { 0 }
    }

    /// Whether anything is expected of it: it can be asked, and gets on.
    pub fn may_give(&self) -> bool {
        self.channel.is_ok() && self.pace.gets_on()
    }

    /// Whether it may be asked for more: it can be asked, and has given what it was asked for.
    pub fn is_able(&self) -> bool {
        self.channel.is_ok() && self.pace.missed == 0
    }

    /// Bytes that may come of it; 0: nothing is expected of it.
    pub fn most(&self) -> u64 {
        if self.may_give() { self.resident().saturating_sub(self.kept) } else { 0 }
    }

    /// What it has, as it measures that now; nothing where it does not answer.
    pub fn stock(&mut self) -> Stock {
        let figures = self.figures();
        if self.channel.is_err() {
            return Stock::default();
        }
        let page = self.inspected.as_ref().and_then(|inspected| inspected.page().ok());
        let caches = page.as_ref().map(|page| rows::<EvictableRow, _>(&page.evictable_caches));
        // Of caches without a row it is not known what they hold.
        self.kept = caches.filter(|&(_, more)| more == 0).map_or(0, |(caches, _)| kept(&figures, &caches));
        let points = page.map_or(Vec::new(), |page| less::points(&page));
        let parts: Vec<Cost> = less::parts_within(&points, self.resident()).collect();
        // What the curve offers may come in any case.
        let most = self.most().max(parts.iter().map(|part| part.bytes).sum());
        Stock { parts, most }
    }

    /// The figures of its answer to `report`; none where it does not answer.
    fn figures(&mut self) -> BTreeMap<String, u64> {
        self.ask("report").unwrap_or_default().lines().filter_map(figure).collect()
    }

    /// The memory that it holds now.
    pub fn holder(&mut self) -> Holder {
        // Once it is late, its figures are not worth the connection, with which its target would end.
        let figures = if is_late(self.until) { BTreeMap::new() } else { self.figures() };
        let resident_bytes = self.resident();
        Holder {
            pid: self.pid,
            command: self.command.clone(),
            resident_bytes,
            given_bytes: self.before.saturating_sub(resident_bytes),
            live_bytes: figures.get("live").copied(),
            idle_bytes: figures.get("idle").copied(),
            not_asked: self.silent(),
        }
    }

    /// One that does not answer, or refuses, is asked no more.
    fn ask(&mut self, request: &str) -> Option<String> {
        if self.channel.is_ok() && is_late(self.until) {
            self.channel = Err(OTHERS_ARE_SLOW.to_owned());
        }
        match self.channel.as_ref().ok()?.ask(request) {
            Ok(answer) => Some(answer),
            Err(why) => {
                self.channel = Err(why.to_string());
                None
            }
        }
    }
}

/// Bytes that a process has in use and cannot give, by its figures and its evictable caches. 0 where a function of the program's
/// may give them, where the kernel may merge them, and where it is not known.
fn kept(figures: &BTreeMap<String, u64>, caches: &[EvictableRow]) -> u64 {
    let figure = |name: &str| figures.get(name).copied();
    if figure("callbacks") != Some(0) || figure("merged") != Some(0) {
        return 0;
    }
    let of_cache = |cache: &EvictableRow| {
        cache
            .bytes
            .saturating_add(cache.bytes / BESIDE_SHARE)
            .saturating_add(cache.entries.saturating_mul(BESIDE_ENTRY))
    };
    let caches = caches.iter().map(of_cache).fold(0, u64::saturating_add);
    let [live, untouched] = ["live", "untouched"].map(|name| figure(name).unwrap_or(0));
    live.saturating_sub(untouched).saturating_sub(caches)
}

fn is_late(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

fn resident(pid: i32, inspected: Option<&Inspected>) -> u64 {
    let stat = match inspected {
        Some(inspected) => inspected.process.statm(),
        None => procfs::process::Process::new(pid).and_then(|process| process.statm()),
    };
    stat.map_or(0, |stat| stat.resident * procfs::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_falls_gets_on_for_any_number_of_rounds_and_who_stands_still_for_few() {
        let mut pace = Pace::NEW;
        for round in 0..100 {
            pace.note((1 << 30) - round * STEP, 1 << 20);
            assert!(pace.gets_on() && pace.missed == 1, "{round}");
        }
        // A page less each time, and then more again, is nothing.
        let stand_still = |pace: &mut Pace, at: u64| {
            let rounds = (1..100).take_while(|round| {
                pace.note(at - (round % 2) * 4096, 1 << 20);
                pace.gets_on()
            });
            rounds.count() as u32 + 1
        };
        let least = pace.lowest;
        assert_eq!(stand_still(&mut pace, least), PAUSE - 1);
        let mut never_fell = Pace::NEW;
        assert_eq!(stand_still(&mut never_fell, least), ROUNDS);
        pace.note(1 << 20, 1 << 20);
        assert_eq!(pace.missed, 0, "it has given all");
    }

    #[test]
    fn what_is_in_use_and_in_no_cache_is_kept_unless_the_program_may_free_it() {
        let told = |text: &str| -> BTreeMap<String, u64> { text.lines().filter_map(figure).collect() };
        let cache = EvictableRow { bytes: 800, entries: 1, ..EvictableRow::default() };
        let quiet = "live 5000 bytes\nmerged 0 bytes\nuntouched 100 bytes\ncallbacks 0\n";
        assert_eq!(kept(&told(quiet), &[]), 4900);
        assert_eq!(kept(&told(quiet), &[cache]), 4900 - 800 - 100 - 64);
        for unknown in
            [quiet.replace("callbacks 0", "callbacks 1"), quiet.replace("merged 0", "merged 1"), String::new()]
        {
            assert_eq!(kept(&told(&unknown), &[]), 0, "{unknown}");
        }
        // A library that does not tell it.
        assert_eq!(kept(&told("live 5000 bytes\nmerged 0 bytes\n"), &[]), 0);
    }

    #[test]
    fn nobody_is_asked_once_it_is_late() {
        let own = std::process::id() as i32;
        let member = |until| Member::of(own, Duration::from_secs(1), Some(until)).unwrap().silent().unwrap();
        assert_eq!(member(Instant::now()), OTHERS_ARE_SLOW);
        assert!(member(Instant::now() + Duration::from_secs(3600)).contains("without Weir"));
    }
}
