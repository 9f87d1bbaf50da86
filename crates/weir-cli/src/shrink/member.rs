//! A process of a group: what it holds, and what it can be asked for.

use crate::figures::rows;
use crate::inspect::asked::{self, figure};
use crate::inspect::control::{Control, OTHERS_ARE_SLOW};
use crate::inspect::page::{Inspected, Missing};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_core::telemetry::tables::EvictableRow;

/// Rounds in which a process above its target does not get on, after which nothing more is expected of it.
const ROUNDS: u32 = 4;
/// As many of one that has got on: where its shrinkers take long, it stands still for a second now and then.
const PAUSE: u32 = 12;
/// A process gets on that has lost so many bytes more: the kernel does not count each page at once.
const STEP: u64 = 64 << 10;
/// The least target, bytes: none asks a process to go away.
const LEAST: u64 = 1 << 20;

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
        let member = Self { pid, command, before, inspected, channel, until, target, pace };
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

    /// Memory that it might give: bytes of its evictable caches.
    pub fn evictable(&mut self) -> u64 {
        self.ask("report");
        let page = self.inspected.as_ref().and_then(|inspected| inspected.page().ok());
        let caches = page.map_or(Vec::new(), |page| rows::<EvictableRow, _>(&page.evictable_caches).0);
        caches.iter().fold(0, |sum, row| sum.saturating_add(row.bytes))
    }

    /// The memory that it holds now.
    pub fn holder(&mut self) -> Holder {
        // Once it is late, its figures are not worth the connection, with which its target would end.
        let report = if is_late(self.until) { None } else { self.ask("report") }.unwrap_or_default();
        let figures: BTreeMap<String, u64> = report.lines().filter_map(figure).collect();
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
    fn nobody_is_asked_once_it_is_late() {
        let own = std::process::id() as i32;
        let member = |until| Member::of(own, Duration::from_secs(1), Some(until)).unwrap().silent().unwrap();
        assert_eq!(member(Instant::now()), OTHERS_ARE_SLOW);
        assert!(member(Instant::now() + Duration::from_secs(3600)).contains("without Weir"));
    }
}
