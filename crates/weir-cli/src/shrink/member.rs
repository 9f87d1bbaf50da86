//! A process of a group: what it holds, and what it can be asked for.

use crate::figures::rows;
use crate::inspect::asked::{self, figure};
use crate::inspect::control::{Control, OTHERS_ARE_SLOW};
use crate::inspect::page::{Inspected, Missing};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_core::telemetry::tables::EvictableRow;

/// Rounds in which a process stays above its target, after which nothing more is expected of it.
const ROUNDS: u32 = 4;
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
    /// Rounds in which it was above its target.
    missed: u32,
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
        let member = Self { pid, command, before, inspected: inspected.ok(), channel, until, target: None, missed: 0 };
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
        (self.target, self.missed) = (Some(target), 0);
    }

    /// Whether it can be asked, and nothing was asked of it.
    pub fn is_free(&self) -> bool {
        self.channel.is_ok() && self.target.is_none()
    }

    /// A round ends: bytes that it is still to give of what it was asked for. Of one that does not get on nothing is expected.
    pub fn owes(&mut self) -> u64 {
        let above = self.target.map_or(0, |target| self.resident().saturating_sub(target));
        self.missed = if above == 0 { 0 } else { self.missed.saturating_add(1) };
        if self.may_give() { above } else { 0 }
    }

    /// Whether anything is expected of it: it can be asked, and gets on.
    pub fn may_give(&self) -> bool {
        self.channel.is_ok() && self.missed < ROUNDS
    }

    /// Whether it may be asked for more: it can be asked, and has given what it was asked for.
    pub fn is_able(&self) -> bool {
        self.channel.is_ok() && self.missed == 0
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
    fn nobody_is_asked_once_it_is_late() {
        let own = std::process::id() as i32;
        let member = |until| Member::of(own, Duration::from_secs(1), Some(until)).unwrap().silent().unwrap();
        assert_eq!(member(Instant::now()), OTHERS_ARE_SLOW);
        assert!(member(Instant::now() + Duration::from_secs(3600)).contains("without Weir"));
    }
}
