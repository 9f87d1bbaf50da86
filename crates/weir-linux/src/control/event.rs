//! Events that subscribers are told of: each batch that was released, and changes of the level of pressure.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::trace::{EVENTS, Event};

/// How far a subscriber has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The next event of the ring.
    next: u64,
    level: u64,
}

impl Told {
    /// From now on.
    pub fn from_now(stats: &Stats) -> Self {
        Self { next: stats.trace.recorded(), level: stats.pressure_level.load(Relaxed) }
    }

    /// Writes the next line there is to tell; `false`: there is none.
    ///
    /// `release NUMBER END_NS PLACE ZONE KIND CAUSE BLOCKS BYTES NS ERROR`, the number counting all batches, so that
    /// missing ones show; `lost NUMBER`, the batches that were overwritten before they could be told; `level NUMBER`, 0
    /// none, 1 some, 2 severe.
    pub fn next_line(&mut self, stats: &Stats, line: &mut impl Write) -> Result<bool, fmt::Error> {
        let level = stats.pressure_level.load(Relaxed);
        if level != self.level {
            self.level = level;
            return writeln!(line, "level {level}").map(|()| true);
        }
        let recorded = stats.trace.recorded();
        if self.next >= recorded {
            return Ok(false);
        }
        // Older ones are overwritten. They are passed at once: under `weir run` another process may have written any number.
        let oldest = recorded.saturating_sub(EVENTS as u64);
        if self.next >= oldest {
            let number = self.next;
            // It is being written: it is told the next time.
            let Some(event) = stats.trace.read(number) else { return Ok(false) };
            self.next += 1;
            return write_event(line, number, &event).map(|()| true);
        }
        let lost = oldest - self.next;
        self.next = oldest;
        writeln!(line, "lost {lost}").map(|()| true)
    }
}

fn write_event(line: &mut impl Write, number: u64, event: &Event) -> fmt::Result {
    write!(line, "release {number} {} ", event.end)?;
    word(line, event.place)?;
    write!(line, "{} ", event.zone)?;
    word(line, event.kind)?;
    word(line, event.cause)?;
    writeln!(line, "{} {} {} {}", event.blocks, event.bytes, event.ns, event.error)
}

/// The name of a value as its type has it, and a blank.
fn word(line: &mut impl Write, value: Option<impl fmt::Debug>) -> fmt::Result {
    match value {
        Some(value) => write!(line, "{value:?} "),
        None => line.write_str("? "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use std::string::String;
    use weir_core::base::cause::Cause;
    use weir_core::telemetry::trace::{Kind, Place};

    fn event(bytes: u64) -> Event {
        Event {
            end: 5,
            place: Some(Place::Normal),
            zone: 1,
            kind: Some(Kind::Whole),
            cause: Some(Cause::Idle),
            blocks: 2,
            bytes,
            ns: 7,
            error: 0,
        }
    }

    fn lines(told: &mut Told, stats: &Stats) -> String {
        let mut text = String::new();
        while told.next_line(stats, &mut text).unwrap() {}
        text
    }

    #[test]
    fn events_come_once_in_order_and_what_was_lost_is_told() {
        let stats = Stats::new();
        stats.trace.record(&event(1));
        let mut told = Told::from_now(&stats);
        assert_eq!(lines(&mut told, &stats), "");
        stats.trace.record(&event(4096));
        stats.pressure_level.store(2, Relaxed);
        assert_eq!(lines(&mut told, &stats), "level 2\nrelease 1 5 Normal 1 Whole Idle 2 4096 7 0\n");
        (0..100).for_each(|bytes| stats.trace.record(&event(bytes)));
        let text = lines(&mut told, &stats);
        assert!(text.starts_with("lost 36\nrelease 38 "), "{text}");
        assert_eq!(text.lines().count(), 65);
        assert_eq!(lines(&mut told, &stats), "");
    }

    #[test]
    fn a_count_that_another_process_wrote_is_passed_at_once() {
        let stats = Stats::new();
        let mut told = Told::from_now(&stats);
        let page = (&raw const stats.trace).cast::<AtomicU64>();
        // SAFETY: the ring begins with the count, an atomic word.
        let count = unsafe { &*page };
        assert_eq!(stats.trace.recorded(), 0);
        count.store(u64::MAX - 5, Relaxed);
        assert_eq!(stats.trace.recorded(), u64::MAX - 5);
        assert_eq!(lines(&mut told, &stats), std::format!("lost {}\n", u64::MAX - 5 - EVENTS as u64));
        (0..10).for_each(|bytes| stats.trace.record(&event(bytes)));
        assert_eq!(lines(&mut told, &stats), "");
    }
}
