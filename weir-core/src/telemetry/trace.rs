//! The record of reports: the last batches of a process, in a ring inside its page of counters.
//!
//! A reader in another process follows it while the program runs ([`Ring::read`]); what it is too slow for is lost, and
//! known to be lost, as every event has a number.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use crate::base::cause::Cause;

/// Events that the ring holds.
pub const EVENTS: usize = 64;

/// What was handed below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Whole pageblocks.
    Whole = 0,
    /// Free runs of partly used pageblocks.
    Runs = 1,
    /// Pages inside slabs.
    Slabs = 2,
    /// Blocks that were mapped on their own.
    Mapped = 3,
}

/// Whose it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// The heap's zone of a node.
    Normal = 0,
    /// The zone below 4 GiB of a node.
    Low32 = 1,
    /// A zone that the program made.
    User = 2,
}

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it was over, ns of the platform's clock.
    pub end: u64,
    /// Whose it was.
    pub place: Place,
    /// The node of a zone of the heap, or the number of one that the program made.
    pub zone: u16,
    /// What went.
    pub kind: Kind,
    /// Who asked.
    pub cause: Cause,
    /// Pageblocks (of `Slabs` and `Mapped`: slabs, blocks) in the batch.
    pub blocks: u16,
    /// Bytes that went.
    pub bytes: u64,
    /// How long the platform took, ns.
    pub ns: u64,
    /// Why not all of it went, in the platform's numbers (Linux: errno); 0: all of it did.
    pub error: u32,
}

/// A place in the ring. The number is the event's, plus one; 0 while it is being written.
#[repr(C)]
struct Slot {
    number: AtomicU64,
    words: [AtomicU64; 4],
}

/// The last [`EVENTS`] events.
#[repr(C)]
pub struct Ring {
    next: AtomicU64,
    slots: [Slot; EVENTS],
}

impl Ring {
    /// Events recorded so far.
    pub fn recorded(&self) -> u64 {
        self.next.load(Acquire)
    }

    /// Records an event. Two writers at once get two places; a writer that is overtaken by a whole round of others may
    /// leave a mixed one.
    pub fn record(&self, event: &Event) {
        let number = self.next.fetch_add(1, AcqRel);
        let slot = &self.slots[number as usize % EVENTS];
        slot.number.store(0, Relaxed);
        fence(Release);
        slot.words.iter().zip(pack(event)).for_each(|(word, value)| word.store(value, Relaxed));
        slot.number.store(number + 1, Release);
    }

    /// Event `number` (from 0), if it is there (and not yet overwritten).
    pub fn read(&self, number: u64) -> Option<Event> {
        let slot = &self.slots[number as usize % EVENTS];
        if slot.number.load(Acquire) != number + 1 {
            return None;
        }
        let words = core::array::from_fn(|i| slot.words[i].load(Relaxed));
        fence(Acquire);
        (slot.number.load(Relaxed) == number + 1).then(|| unpack(words))
    }

    /// Forgets everything: for a forked child, whose events are its own.
    pub fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.number.store(0, Relaxed));
        self.next.store(0, Release);
    }
}

fn pack(event: &Event) -> [u64; 4] {
    let what = u64::from(event.place as u8)
        | u64::from(event.kind as u8) << 2
        | (event.cause as u64) << 4
        | u64::from(event.zone) << 8
        | u64::from(event.blocks) << 24
        | u64::from(event.error & 0xff_ffff) << 40;
    [event.end, what, event.bytes, event.ns]
}

fn unpack([end, what, bytes, ns]: [u64; 4]) -> Event {
    let place = [Place::Normal, Place::Low32, Place::User][(what & 3).min(2) as usize];
    let kind = [Kind::Whole, Kind::Runs, Kind::Slabs, Kind::Mapped][(what >> 2 & 3) as usize];
    let cause = [Cause::Idle, Cause::Pressure, Cause::Limit, Cause::Asked][(what >> 4 & 3) as usize];
    let (zone, blocks, error) = ((what >> 8) as u16, (what >> 24) as u16, (what >> 40) as u32);
    Event { end, place, zone, kind, cause, blocks, bytes, ns, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::stats::Stats;

    fn event(n: u64) -> Event {
        Event {
            end: n,
            place: Place::User,
            zone: 513,
            kind: Kind::Slabs,
            cause: Cause::Limit,
            blocks: 16,
            bytes: n << 21,
            ns: 7,
            error: 22,
        }
    }

    #[test]
    fn the_last_events_can_be_read_and_older_ones_are_known_to_be_gone() {
        let stats = Stats::new();
        (0..100).for_each(|n| stats.trace.record(&event(n)));
        assert_eq!(stats.trace.recorded(), 100);
        assert_eq!(stats.trace.read(35), None);
        (36..100).for_each(|n| assert_eq!(stats.trace.read(n), Some(event(n))));
        assert_eq!(stats.trace.read(100), None);
        stats.trace.clear();
        assert_eq!((stats.trace.recorded(), stats.trace.read(99)), (0, None));
    }

    #[test]
    fn a_reader_sees_each_event_whole() {
        let stats = Stats::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20_000).for_each(|n| stats.trace.record(&event(n))));
            let mut next = 0;
            while next < 20_000 {
                let recorded = stats.trace.recorded();
                for n in next..recorded {
                    assert!(stats.trace.read(n).is_none_or(|e| e == event(n)));
                }
                next = recorded;
            }
        });
    }
}
