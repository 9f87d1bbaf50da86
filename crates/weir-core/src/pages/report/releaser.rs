//! Releases isolated pages in as few calls as it can, and sorts out what is refused.
//!
//! A run that the platform does not take (locked pages are in it) is tried once more by the pageblock. Pageblocks that
//! are refused then stay as they were. After `GIVE_UP` refusals in a batch nothing of it is tried any more: all memory
//! is locked.

use crate::base::cause::Cause;
use crate::base::run::Run;
use crate::base::time::Nanos;
use crate::base::units::PAGEBLOCK;
use crate::pages::zone::ReportOutcome;
use crate::platform::{Contents, Host, Platform, Released};
use crate::policy::refault::{span, stamp};
use crate::telemetry::stats;
use crate::telemetry::trace::{Event, Kind, Place};

/// Runs handed to the platform in one call.
pub(crate) const RUNS: usize = 32;
/// Refusals in a batch after which nothing more of it is tried.
const GIVE_UP: usize = 8;

/// Collects runs and releases them a callful at a time.
pub(crate) struct Releaser<'a, P: Platform, B: Host + ?Sized, F: FnMut(Run)> {
    platform: &'a P,
    below: &'a B,
    calm: bool,
    /// The system below may take them later, where the setting says so.
    may_wait: bool,
    /// Lent by the caller: an array of this length is better not on a stack, which may be the program's.
    runs: &'a mut [Run; RUNS],
    len: usize,
    bytes: u64,
    ns: u64,
    contents: Contents,
    error: u32,
    refusals: usize,
    /// Told of each run that stays.
    refused: F,
}

impl<'a, P: Platform, B: Host + ?Sized, F: FnMut(Run)> Releaser<'a, P, B, F> {
    pub(crate) fn new(platform: &'a P, below: &'a B, cause: Cause, runs: &'a mut [Run; RUNS], refused: F) -> Self {
        let (calm, contents) = (cause == Cause::Idle, Contents::Zero);
        Self {
            platform,
            below,
            calm,
            may_wait: calm,
            runs,
            len: 0,
            bytes: 0,
            ns: 0,
            contents,
            error: 0,
            refusals: 0,
            refused,
        }
    }

    /// This one, for what could not be recalled later.
    pub(crate) fn eagerly(self) -> Self {
        Self { may_wait: false, ..self }
    }

    pub(crate) fn add(&mut self, run: Run) {
        if let Some(last) = self.runs[..self.len].last_mut()
            && last.addr + last.len == run.addr
        {
            last.len += run.len;
        } else {
            if self.len == RUNS {
                self.flush();
            }
            self.runs[self.len] = run;
            self.len += 1;
        }
    }

    fn flush(&mut self) {
        let (mut at, len) = (0, core::mem::take(&mut self.len));
        if len == 0 {
            return;
        }
        let begin = self.platform.now();
        while at < len {
            at += self.release(at, len);
            if at < len {
                self.release_by_pageblock(self.runs[at]);
                at += 1;
            }
        }
        self.ns += self.platform.now().since(begin).0;
    }

    /// Releases the runs from `at` up to the first that is refused; returns how many went.
    fn release(&mut self, at: usize, end: usize) -> usize {
        if self.refusals >= GIVE_UP {
            return 0;
        }
        let released = self.below.release(&self.runs[at..end], self.may_wait);
        let bytes = self.runs[at..at + released.runs].iter().map(|run| run.len as u64).sum();
        self.note(&released, bytes, end - at);
        released.runs
    }

    /// Notes what became of `wanted` runs.
    fn note(&mut self, released: &Released, bytes: u64, wanted: usize) {
        let stats = self.platform.stats();
        stats::add(&stats.reports, 1);
        self.bytes += bytes;
        if released.contents == Contents::Undefined {
            self.contents = Contents::Undefined;
        }
        if released.runs < wanted {
            stats::add(&stats.report_failures, 1);
            (self.error, self.refusals) = (released.error, self.refusals + 1);
        }
    }

    /// A run over many pageblocks was refused: those of them that are not go nevertheless.
    fn release_by_pageblock(&mut self, run: Run) {
        let (mut addr, end) = (run.addr, run.addr + run.len);
        while addr < end {
            let len = (PAGEBLOCK - addr % PAGEBLOCK).min(end - addr);
            let part = Run { addr, len };
            if len == run.len || !self.release_part(part) {
                (self.refused)(part);
            }
            addr += len;
        }
    }

    fn release_part(&mut self, part: Run) -> bool {
        if self.refusals >= GIVE_UP {
            return false;
        }
        let released = self.below.release(&[part], self.may_wait);
        self.note(&released, (released.runs * part.len) as u64, 1);
        released.runs == 1
    }

    /// Ends the batch; returns its event, and what the system below made of its pages.
    pub(crate) fn finish(&mut self, event: Event, horizon: Nanos) -> (Event, ReportOutcome) {
        self.flush();
        let end = self.platform.now();
        let stats = self.platform.stats();
        stats::add(&stats.report_ns, self.ns);
        stats.release_times.note(self.ns);
        let event = Event { end: end.0, bytes: self.bytes, ns: self.ns, error: self.error, ..event };
        stats.trace.record(&event);
        let (contents, calm) = (self.contents, self.calm);
        let lazily =
            self.may_wait && contents == Contents::Undefined && self.platform.tunables().report_lazily.get() != 0;
        (event, ReportOutcome { contents, at: stamp(end), horizon: span(horizon), calm, lazily })
    }
}

/// An event that nothing is known of yet but what it is about.
pub(crate) fn event(place: Place, zone: u16, cause: Cause, kind: Kind, blocks: usize) -> Event {
    let (place, kind, cause, blocks) = (Some(place), Some(kind), Some(cause), blocks as u16);
    Event { end: 0, place, zone, kind, cause, blocks, bytes: 0, ns: 0, error: 0 }
}
