//! The batches that a process released, as lines of JSON, from the ring in its page of statistics.

use super::released::CAUSES;
use serde_json::json;
use weir_core::telemetry::trace::{EVENTS, Event, Kind, Place};
use weir_linux::os::syscall::Errno;

/// The lines for events of process `pid` from `next` on, of which `recorded` were recorded in all; `read` gives one by its
/// number, if it is there still.
pub fn news(pid: u32, recorded: u64, read: impl Fn(u64) -> Option<Event>, next: &mut u64) -> Vec<serde_json::Value> {
    if recorded < *next {
        // Another program in the same process, which counts anew.
        *next = 0;
    }
    let oldest = recorded.saturating_sub(EVENTS as u64).max(*next);
    let mut lost = oldest.saturating_sub(*next);
    let mut lines = Vec::new();
    for number in oldest..recorded {
        match read(number) {
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
    let cause = event.cause.map_or("unknown", |cause| CAUSES[cause as usize]);
    let result = if event.error == 0 { "ok".to_owned() } else { Errno(event.error as i32).to_string() };
    json!({
        "pid": pid, "at_ns": event.end, "zone": format!("{place}/{}", event.zone), "kind": kind, "cause": cause,
        "blocks": event.blocks, "bytes": event.bytes, "ns": event.ns, "result": result,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::base::cause::Cause;
    use weir_core::telemetry::stats::Stats;

    fn event(n: u64) -> Event {
        let (place, kind, cause) = (Some(Place::Normal), Some(Kind::Whole), Some(Cause::Pressure));
        Event { end: n, place, zone: 1, kind, cause, blocks: 16, bytes: 32 << 20, ns: 7, error: 22 * (n as u32 % 2) }
    }

    #[test]
    fn events_are_told_once_and_lost_ones_counted() {
        let (stats, mut next) = (Stats::new(), 0);
        let told = |next: &mut u64| news(0, stats.trace.recorded(), |number| stats.trace.read(number), next);
        (0..2).for_each(|n| stats.trace.record(&event(n)));
        let lines = told(&mut next);
        assert_eq!(
            lines[1].to_string(),
            r#"{"at_ns":1,"blocks":16,"bytes":33554432,"cause":"pressure","kind":"whole","ns":7,"pid":0,"result":"EINVAL","zone":"normal/1"}"#
        );
        assert_eq!((lines.len(), told(&mut next).len()), (2, 0));
        (2..102).for_each(|n| stats.trace.record(&event(n)));
        let lines = told(&mut next);
        assert_eq!((lines.len(), lines[0]["lost"].as_u64(), lines[1]["at_ns"].as_u64()), (65, Some(36), Some(38)));
    }
}
