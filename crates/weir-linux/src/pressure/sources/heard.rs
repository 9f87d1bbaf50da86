//! The consequence of one source's event: a level of pressure, a doubt that is settled by reading, or that the source has ended.

use super::{MS, Sources};
use crate::os::fd::{self, POLLERR, POLLHUP, POLLIN, POLLNVAL, PollFd};
use crate::pressure::events::{Events, Source};
use crate::pressure::group::memcg::EventCounts;
use crate::pressure::sources::notifiers::{ALL, MUTE_NS, Notifier};
use crate::pressure::systemd_watch;
use weir_core::base::level::Level;

/// How long an ancestor's events are muted at most. Each that concerns another group doubles the time, so that a system
/// of many processes is not woken by each group at its limit.
pub(super) const MUTE_HINT_NS: u64 = 600_000 * MS;
/// After a trigger's event, stalls are read for so long, to hear whether they become severe.
const ALERT_NS: u64 = 2_000 * MS;

impl Sources {
    /// Whether a notifier's events are waited for.
    pub(super) fn is_heard(&self, notifier: Notifier) -> bool {
        !self.is_silenced || !notifier.is_of_pressure() || notifier == Notifier::Watch
    }

    /// Whether pressure is not to be heard from now on. What came while it was not is forgotten: it was another moment's, and
    /// a warm heap reads how things are now.
    pub(super) fn silence(&mut self, is_silenced: bool, now: u64) {
        if core::mem::replace(&mut self.is_silenced, is_silenced) <= is_silenced {
            return;
        }
        let pressure = |notifier: Notifier| notifier.is_of_pressure() && notifier != Notifier::Watch;
        let mut polled = ALL.map(|notifier| {
            let slot = &self.slots[notifier as usize];
            PollFd { fd: if pressure(notifier) { slot.fd } else { -1 }, events: slot.events, revents: 0 }
        });
        if fd::ppoll(&mut polled, Some(0)).is_err() {
            return;
        }
        let mut missed = Events::default();
        for (notifier, poll) in ALL.into_iter().zip(polled).filter(|(_, poll)| poll.revents != 0) {
            self.take(notifier, poll.revents, now, &mut missed);
        }
        self.alert_until = 0;
    }

    /// Takes one source's event.
    pub(super) fn take(&mut self, notifier: Notifier, revents: i16, now: u64, events: &mut Events) {
        let slot = &mut self.slots[notifier as usize];
        let gone = revents & (POLLERR | POLLHUP | POLLNVAL) != 0;
        match notifier {
            Notifier::Thread => {
                self.close(notifier);
                events.thread_ended = true;
            }
            Notifier::Control => events.control = true,
            Notifier::SystemStall | Notifier::GroupStall => {
                if gone {
                    return self.lose(notifier, now);
                }
                match slot.growth.as_mut().map(|growth| growth.is_enough(slot.fd)) {
                    Some(Ok(true)) => {}
                    Some(Err(_)) => return self.lose(notifier, now),
                    _ => return,
                }
                let cause = if notifier == Notifier::SystemStall { Source::SystemStall } else { Source::GroupStall };
                events.raise(Level::Some, cause);
                self.alert_until = now + ALERT_NS;
            }
            Notifier::OwnEvents | Notifier::TightestEvents => {
                slot.mute_until = now + MUTE_NS;
                match EventCounts::read(slot.fd) {
                    // kernfs raises POLLERR together with every POLLPRI; only a failing read means "gone".
                    Ok(counts) => {
                        let level = counts.level_since(core::mem::replace(&mut slot.counts, counts));
                        events.raise(level, Source::GroupEvent);
                    }
                    Err(_) => self.lose(notifier, now),
                }
            }
            Notifier::LowLevel | Notifier::CriticalLevel => {
                slot.mute_until = now + MUTE_NS;
                if fd::eventfd_take(slot.fd).is_err() {
                    return self.lose(notifier, now);
                }
                let critical = notifier == Notifier::CriticalLevel;
                events.raise(if critical { Level::Severe } else { Level::Some }, Source::GroupEvent);
            }
            Notifier::Hint => {
                let again = now < slot.mute_until + slot.mute_ns;
                slot.mute_ns = if again { (slot.mute_ns * 2).min(MUTE_HINT_NS) } else { MUTE_NS };
                slot.mute_until = now + slot.mute_ns;
                // v1 has an eventfd, v2 the group's counters.
                let taken = if slot.events == POLLIN {
                    fd::eventfd_take(slot.fd).map(drop)
                } else {
                    EventCounts::read(slot.fd).map(drop)
                };
                match taken {
                    Ok(()) => self.doubt = true,
                    Err(_) => self.lose(notifier, now),
                }
            }
            Notifier::Watch => {
                slot.mute_until = now + MUTE_NS;
                let heard = revents & slot.events != 0;
                let ended = if slot.has_input { !systemd_watch::discard_input(slot.fd) } else { gone };
                let is_true = slot.growth.as_mut().is_none_or(|growth| growth.is_enough(slot.fd) == Ok(true));
                if heard && is_true && !ended {
                    // Its default answer is a full trim (`malloc_trim`), and it says so once, not by degrees.
                    events.raise(Level::Severe, Source::ServiceManager);
                }
                if ended {
                    self.lose(notifier, now);
                }
            }
        }
    }
}
