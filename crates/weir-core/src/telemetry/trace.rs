//! The record of reports: the last batches of a process, in a ring inside its page of counters.
//!
//! A reader in another process follows it while the program runs ([`Ring::read`]). Events that come too fast for it are
//! lost, and known to be lost, as every event has a number. Under `weir run` other processes may write any number here.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use crate::base::cause::Cause;

/// Events that the ring holds.
pub const EVENTS: usize = 64;

/// Kinds of memory that a batch releases.
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

/// Where it was.
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
    /// Where it was; `None`: a kind of place that this version does not have.
    pub place: Option<Place>,
    /// The node of a zone of the heap, or the number of one that the program made.
    pub zone: u16,
    /// Kind of memory; `None`: a kind that this version does not have.
    pub kind: Option<Kind>,
    /// Why; `None`: a cause that this version does not have.
    pub cause: Option<Cause>,
    /// Pageblocks (of `Slabs` and `Mapped`: slabs, blocks) in the batch.
    pub blocks: u16,
    /// Bytes that were released.
    pub bytes: u64,
    /// How long the platform took, ns; [`MAX_NS`] and more read as that.
    pub ns: u64,
    /// Why a part was refused, in the platform's numbers (Linux: errno), as far as 24 bits hold them; 0: nothing was.
    pub error: u32,
}

/// The longest time that an event can tell, ns: 18 minutes.
pub const MAX_NS: u64 = (1 << 40) - 1;

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
        slot.number.store(number.wrapping_add(1), Release);
    }

    /// Event `number` (from 0), if it is there (and not yet overwritten).
    pub fn read(&self, number: u64) -> Option<Event> {
        let (slot, wanted) = (&self.slots[number as usize % EVENTS], number.wrapping_add(1));
        if slot.number.load(Acquire) != wanted {
            return None;
        }
        let words = core::array::from_fn(|i| slot.words[i].load(Relaxed));
        fence(Acquire);
        (slot.number.load(Relaxed) == wanted).then(|| unpack(words))
    }

    /// Forgets everything: for a forked child, whose events are its own.
    pub(crate) fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.number.store(0, Relaxed));
        self.next.store(0, Release);
    }
}

/// In place of a number that is not known.
const UNKNOWN: u8 = u8::MAX;
const KINDS: [Kind; 4] = [Kind::Whole, Kind::Runs, Kind::Slabs, Kind::Mapped];
const PLACES: [Place; 3] = [Place::Normal, Place::Low32, Place::User];
const CAUSES: [Cause; 4] = [Cause::Idle, Cause::Pressure, Cause::Limit, Cause::Asked];

/// Eight bits each for place, kind and cause, so that more of them can come; eight are left.
fn pack(event: &Event) -> [u64; 4] {
    let number = |number: Option<u8>| u64::from(number.unwrap_or(UNKNOWN));
    let what = number(event.place.map(|place| place as u8))
        | number(event.kind.map(|kind| kind as u8)) << 8
        | number(event.cause.map(|cause| cause as u8)) << 16
        | u64::from(event.zone) << 32
        | u64::from(event.blocks) << 48;
    [event.end, what, event.bytes, event.ns.min(MAX_NS) | u64::from(event.error) << 40]
}

fn unpack([end, what, bytes, time]: [u64; 4]) -> Event {
    let [place, kind, cause, ..] = what.to_le_bytes().map(usize::from);
    Event {
        end,
        place: PLACES.get(place).copied(),
        zone: (what >> 32) as u16,
        kind: KINDS.get(kind).copied(),
        cause: CAUSES.get(cause).copied(),
        blocks: (what >> 48) as u16,
        bytes,
        ns: time & MAX_NS,
        error: (time >> 40) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::stats::Stats;

    fn event(n: u64) -> Event {
        Event {
            end: n,
            place: Some(Place::User),
            zone: 513,
            kind: Some(Kind::Slabs),
            cause: Some(Cause::Limit),
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
    fn every_value_is_read_as_it_was_written() {
        assert!(KINDS.iter().enumerate().all(|(i, &kind)| kind as usize == i));
        assert!(PLACES.iter().enumerate().all(|(i, &place)| place as usize == i));
        assert!(CAUSES.iter().enumerate().all(|(i, &cause)| cause as usize == i));
        for kind in KINDS {
            for place in PLACES {
                for cause in CAUSES {
                    let (place, kind, cause) = (Some(place), Some(kind), Some(cause));
                    let event = Event { place, kind, cause, zone: u16::MAX, blocks: u16::MAX, ns: MAX_NS, ..event(9) };
                    assert_eq!(unpack(pack(&event)), event);
                }
            }
        }
        let extreme = Event { ns: u64::MAX, error: (1 << 24) - 1, ..event(u64::MAX >> 21) };
        assert_eq!(unpack(pack(&extreme)), Event { ns: MAX_NS, ..extreme });
    }

    #[test]
    fn what_another_version_wrote_is_read_as_unknown() {
        let [end, _, bytes, time] = pack(&event(1));
        for value in [4, 5, 100, UNKNOWN] {
            let what = u64::from_le_bytes([value, value, value, 0, 1, 2, 16, 0]);
            let unknown = Event { place: None, kind: None, cause: None, ..event(1) };
            assert_eq!(unpack([end, what, bytes, time]), unknown);
        }
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
