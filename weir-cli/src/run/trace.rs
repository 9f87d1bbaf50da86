//! `weir run --trace`: every batch that the program's processes release, as a line of JSON each.

use crate::base::failure::Failure;
use crate::base::sink;
use crate::processes::stats_file::StatsFile;
use serde_json::json;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_core::base::cause::Cause;
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::trace::{EVENTS, Event, Kind, Place};
use weir_linux::os::syscall::Errno;

/// Time between two reads of the rings: of a process that releases more than 64 batches in this time, events are lost.
pub const READ_INTERVAL: Duration = Duration::from_millis(2);

/// The file of events, and how far the events of each process were read.
pub struct Trace {
    path: PathBuf,
    file: BufWriter<File>,
    next: HashMap<usize, u64>,
    error: Option<std::io::Error>,
}

impl Trace {
    /// Makes the file.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = sink::create("--trace", path)?;
        Ok(Self { path: path.into(), file: BufWriter::new(file), next: HashMap::new(), error: None })
    }

    /// Writes the events since the last call.
    pub fn follow(&mut self, stats: &StatsFile) {
        for page in stats.pages() {
            let next = self.next.entry(std::ptr::from_ref(page) as usize).or_default();
            let lines = news(page, next);
            for line in lines {
                if let Err(e) = writeln!(self.file, "{line}") {
                    self.error.get_or_insert(e);
                }
            }
        }
    }

    /// The last of it; what could not be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.file.flush();
        match self.error.map_or(flushed, Err) {
            Ok(()) => Ok(()),
            Err(e) => Err(Failure::of_weir(format!("cannot write {}: {e}: is its disk full?", self.path.display()))),
        }
    }
}

/// The lines for events of a process from `next` on.
fn news(page: &Stats, next: &mut u64) -> Vec<serde_json::Value> {
    let (pid, recorded) = (page.pid.load(Relaxed), page.trace.recorded());
    let oldest = recorded.saturating_sub(EVENTS as u64).max(*next);
    let mut lost = oldest.saturating_sub(*next);
    let mut lines = Vec::new();
    for number in oldest..recorded {
        match page.trace.read(number) {
            Some(event) => lines.push(line(pid, &event)),
            None => lost += 1,
        }
    }
    if lost > 0 {
        lines.insert(0, json!({ "pid": pid, "lost": lost }));
    }
    *next = recorded;
    lines
}

fn line(pid: u32, event: &Event) -> serde_json::Value {
    let place = match event.place {
        Some(Place::Normal) => "normal",
        Some(Place::Low32) => "low32",
        Some(Place::User) => "user",
        None => "unknown",
    };
    let kind = match event.kind {
        Some(Kind::Whole) => "whole",
        Some(Kind::Runs) => "runs",
        Some(Kind::Slabs) => "slabs",
        Some(Kind::Mapped) => "mapped",
        None => "unknown",
    };
    let cause = match event.cause {
        Some(Cause::Idle) => "idle",
        Some(Cause::Pressure) => "pressure",
        Some(Cause::Limit) => "limit",
        Some(Cause::Asked) => "asked",
        None => "unknown",
    };
    let result = if event.error == 0 { "ok".to_owned() } else { Errno(event.error as i32).to_string() };
    json!({
        "pid": pid, "at_ns": event.end, "zone": format!("{place}/{}", event.zone), "kind": kind, "cause": cause,
        "blocks": event.blocks, "bytes": event.bytes, "ns": event.ns, "result": result,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u64) -> Event {
        let (place, kind, cause) = (Some(Place::Normal), Some(Kind::Whole), Some(Cause::Pressure));
        Event { end: n, place, zone: 1, kind, cause, blocks: 16, bytes: 32 << 20, ns: 7, error: 22 * (n as u32 % 2) }
    }

    #[test]
    fn events_are_told_once_and_lost_ones_counted() {
        let (stats, mut next) = (Stats::new(), 0);
        (0..2).for_each(|n| stats.trace.record(&event(n)));
        let lines = news(&stats, &mut next);
        assert_eq!(
            lines[1].to_string(),
            r#"{"at_ns":1,"blocks":16,"bytes":33554432,"cause":"pressure","kind":"whole","ns":7,"pid":0,"result":"EINVAL","zone":"normal/1"}"#
        );
        assert_eq!((lines.len(), news(&stats, &mut next).len()), (2, 0));
        (2..102).for_each(|n| stats.trace.record(&event(n)));
        let lines = news(&stats, &mut next);
        assert_eq!((lines.len(), lines[0]["lost"].as_u64(), lines[1]["at_ns"].as_u64()), (65, Some(36), Some(38)));
    }
}
