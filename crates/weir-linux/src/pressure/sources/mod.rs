//! All sources of memory pressure, behind one wait.
//!
//! The thread that waits gets a descriptor table of its own (see [`super::wake`]). So the descriptors kept here are out of the
//! program's sight and reach. Where a sandbox refuses that, nothing is kept open at all: everything is then read at intervals
//! while the heap is warm.
//!
//! Pressure files are read at intervals too, and their triggers armed only in a process that has lived for a while. Closing a
//! trigger waits for the kernel's RCU readers, about 12 ms each, which every process would pay at its exit. An unprivileged
//! trigger is slower than reading anyway (the kernel looks every 2 s); what triggers are for is the process that sleeps.

use self::notifiers::{ALL, CLOSED, Notifier, Slot};
use self::pace::{Pace, READ_INTERVAL_NS};
use self::readings::Readings;
pub use self::room::{group_limit, machine_free};
use super::events::{Events, Heat, Source};
use super::group::groups::Groups;
use super::group::memcg::tightest_room;
use super::psi::{Kind, Threshold};
use super::systemd_watch::Request;
use super::wake::{self, Listener, Waker};
use crate::os::clock::monotonic_ns;
use crate::os::fd::{self, POLLIN, PollFd};
use crate::os::file::descriptor_table;
use crate::os::syscall::{Errno, Result};
use core::sync::atomic::{AtomicU32, Ordering::Acquire};
use linux_raw_sys::general::{O_DIRECTORY, O_PATH};
use weir_core::base::level::Level;
use weir_core::reclaim::budget::Room;
use weir_core::telemetry::tunables::Tunables;

const MS: u64 = 1_000_000;
/// Between two readings while the heap rests and has a limit of its own, which can only be read; and after a trigger's event.
const LIMIT_INTERVAL_NS: u64 = 1_000 * MS;
/// Between two readings while the heap rests and a source that should notify does not: the window of an unprivileged trigger.
const DEAF_INTERVAL_NS: u64 = 2_000 * MS;
/// Age from which on a process arms triggers.
const TRIGGERS_AFTER_NS: u64 = 10_000 * MS;
/// Until the first try to open again what was lost (a removed group, a service manager's socket that ended). Each try
/// doubles the time until the next: what never comes is not to wake a process at rest for ever.
const REOPEN_NS: u64 = 10_000 * MS;
/// The longest such time.
const REOPEN_MOST_NS: u64 = 3_600_000 * MS;

/// The sources of pressure of one process, used by one thread.
pub struct Sources {
    waker: Option<&'static Waker>,
    /// Waits for the slots' descriptors. `None`: they are polled only where the sources are read.
    listener: Option<&'static Listener>,
    /// The number of the listener's thread, which the kernel sets to 0 when that ends.
    listener_thread: Option<&'static AtomicU32>,
    /// Whether this thread has its own descriptor table, and so may keep descriptors.
    private: bool,
    slots: [Slot; ALL.len()],
    groups: Groups,
    /// Holds the triggers' files, so that their end is not waited for ([`crate::os::file::ring`]); -1: nothing does.
    ring: i32,
    readings: Readings,
    last_reading: u64,
    /// When to look at the room alone, between two readings of a warm heap.
    pace: Pace,
    /// The room of the last reading, until [`Sources::take_room`] takes it.
    room: Option<Room>,
    /// An event was heard whose reason is to be read at once.
    doubt: bool,
    /// The setting `limit`, as of the last reading.
    limit_read: u64,
    /// Pressure was not heard at the last wait, as there was nothing to give.
    is_silenced: bool,
    /// The directory of the system's pressure files, which a `chroot` does not hide.
    pressure_dir: i32,
    /// The service manager asked for no reaction to pressure: none is heard. Limits hold as ever.
    off: bool,
    watch: WatchRequest,
    thresholds: Option<(Threshold, Threshold)>,
    /// When to arm triggers; `u64::MAX` once they are.
    triggers_at: u64,
    /// Until when stalls are read although the heap is cold.
    alert_until: u64,
    /// When to look again for what was lost; `u64::MAX` while nothing is.
    reopen_at: u64,
    reopen_after: u64,
    /// When it was last looked for, ns.
    reopened_at: u64,
}

/// The service manager's request, kept for when its file must be opened again.
struct WatchRequest {
    path: crate::os::file::path::FixedPath,
    write: crate::os::file::path::FixedPath,
}

impl Sources {
    /// Nothing open.
    pub const fn new() -> Self {
        use crate::os::file::path::FixedPath;
        Self {
            waker: None,
            listener: None,
            listener_thread: None,
            private: false,
            slots: [CLOSED; ALL.len()],
            groups: Groups::new(),
            ring: -1,
            readings: Readings::new(),
            last_reading: 0,
            pace: Pace::new(),
            room: None,
            doubt: false,
            limit_read: 0,
            is_silenced: false,
            pressure_dir: -1,
            off: false,
            watch: WatchRequest { path: FixedPath::new(), write: FixedPath::new() },
            thresholds: None,
            triggers_at: u64::MAX,
            alert_until: 0,
            reopen_at: u64::MAX,
            reopen_after: REOPEN_NS,
            reopened_at: 0,
        }
    }

    /// Opens all sources there are, for the calling thread, which must be Weir's own:
    /// its descriptor table becomes a private, empty one. Sources that are not there or not permitted are left out.
    pub fn open(&mut self, waker: &'static Waker, request: &Request<'_>, tunables: &Tunables) {
        self.private = descriptor_table::private_table().is_ok();
        self.waker = Some(waker);
        self.off = matches!(request, Request::Off);
        if let Request::Watch { path, write } = request
            && self.watch.path.push(path)
        {
            let _ = self.watch.write.push(write.unwrap_or(b""));
        }
        if self.private {
            self.readings.keep_open();
            self.pressure_dir = fd::open(c"/proc/pressure", O_PATH | O_DIRECTORY).unwrap_or(-1);
        }
        self.triggers_at = monotonic_ns() + TRIGGERS_AFTER_NS;
        self.arm(tunables);
    }

    /// From now on what notifies is waited for by `listener`, whose thread shares this one's descriptor table. The kernel sets
    /// the number of that thread to 0 when it ends.
    pub fn listen_with(&mut self, listener: &'static Listener, thread: &'static AtomicU32) {
        (self.listener, self.listener_thread) = (Some(listener), Some(thread));
    }

    /// Whether there is a listener.
    pub fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Reports the end of a thread of the program, once. An error: the kernel does not report it.
    pub fn watch_thread(&mut self, thread: u32) -> Result<()> {
        self.close(Notifier::Thread);
        if self.listener.is_none() {
            return Err(Errno::EINVAL);
        }
        let descriptor = crate::os::process::thread_descriptor(thread)?;
        self.set(Notifier::Thread, descriptor, POLLIN);
        Ok(())
    }

    /// Reports whenever a descriptor of the caller's is readable; with none, no more. `false`: nothing would report it.
    pub fn watch_control(&mut self, descriptor: Option<i32>) -> bool {
        self.set(Notifier::Control, descriptor.unwrap_or(-1), POLLIN);
        self.listener.is_some()
    }

    /// Sets what may be resident at most, bytes, until it is set anew; the next wait looks at once. Whether it is another one
    /// than before.
    pub fn set_target(&mut self, bytes: Option<u64>) -> bool {
        let has_changed = self.readings.set_target(bytes);
        // Also one that is gone: the budget still has it.
        self.doubt |= has_changed;
        has_changed
    }

    /// Whether the calling thread has a descriptor table of its own, and may keep descriptors.
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// Whether a limit holds for the group, its own or one above.
    pub fn is_limited(&self) -> bool {
        self.groups.with(self.private, |memory, _| memory.is_some_and(|group| tightest_room(group, 0).is_some()))
    }

    /// Bytes of the process that are resident, whoever manages them.
    pub fn resident(&self) -> Option<u64> {
        self.readings.resident()
    }

    /// Waits for pressure, a wake-up, or the timeout. What cannot notify is read at intervals, which depend on the
    /// heap's `heat`; a cold one with no limit of its own sleeps undisturbed. For an empty one no pressure but the service
    /// manager's is heard at all.
    pub fn wait(&mut self, tunables: &Tunables, heat: Heat, timeout_ns: Option<u64>) -> Events {
        let deadline = timeout_ns.map(|t| monotonic_ns().saturating_add(t));
        loop {
            let mut events = Events { woken: self.waker.is_some_and(Waker::take), ..Events::default() };
            let now = monotonic_ns();
            self.tend(tunables, heat, now);
            self.silence(heat == Heat::Empty, now);
            let until = if events.woken {
                Some(now)
            } else {
                let reading = self.next_reading(tunables, heat, now).into_iter().chain(self.next_look(heat)).min();
                self.next_stop(deadline, reading, heat, now)
            };
            self.sleep(until.map(|t| t.saturating_sub(now)), now, &mut events);
            let now = monotonic_ns();
            if self.next_reading(tunables, heat, now).is_some_and(|at| now >= at) {
                self.last_reading = now;
                self.read(now, tunables, &mut events);
            } else if self.next_look(heat).is_some_and(|at| now >= at) {
                self.room = Some(self.measure(tunables));
            }
            events.timed_out = deadline.is_some_and(|d| now >= d);
            let is_told = events.woken || events.thread_ended || events.control || self.room.is_some();
            if is_told || events.timed_out || events.level > Level::None {
                return events;
            }
        }
    }

    /// When to look next at the room alone, if at all: where little is left, or much of it goes. The balancer goes by it; it is
    /// no event.
    fn next_look(&self, heat: Heat) -> Option<u64> {
        matches!(heat, Heat::Warm | Heat::Caching).then(|| self.pace.due()).flatten()
    }

    /// When to read next, if at all.
    fn next_reading(&self, tunables: &Tunables, heat: Heat, now: u64) -> Option<u64> {
        // By the budget of before, a program would fill its caches to a limit that holds no more.
        if self.doubt || tunables.limit.get() != self.limit_read {
            return Some(0);
        }
        let is_alert = heat == Heat::Resting && now < self.alert_until;
        let interval = if matches!(heat, Heat::Warm | Heat::Caching) || self.readings.has_target() {
            READ_INTERVAL_NS
        } else if tunables.limit.get() != 0 || is_alert {
            LIMIT_INTERVAL_NS
        } else if heat == Heat::Resting && self.is_deaf() {
            DEAF_INTERVAL_NS
        } else {
            return None;
        };
        Some(self.last_reading + interval)
    }

    /// Whether a source of pressure that is there does not notify: its file may not be written, or it is not worth its
    /// trigger yet.
    pub fn is_deaf(&self) -> bool {
        let is_open = |notifier: Notifier| self.slots[notifier as usize].fd >= 0;
        let group = self.groups.memory.is_some() && !is_open(Notifier::OwnEvents) && !is_open(Notifier::LowLevel);
        !self.off && (self.listener.is_none() || !is_open(Notifier::SystemStall) || group)
    }

    /// The next moment at which something is to be done without an event.
    fn next_stop(&self, deadline: Option<u64>, reading: Option<u64>, heat: Heat, now: u64) -> Option<u64> {
        let reading = reading.map(|at| at.max(now));
        let heard = ALL.into_iter().filter(|&notifier| self.is_heard(notifier)).map(|n| &self.slots[n as usize]);
        let muted = heard.filter(|s| s.fd >= 0 && s.mute_until > now).map(|s| s.mute_until).min();
        let triggers = if wants_triggers(heat) { self.triggers_at } else { u64::MAX };
        let reopen = Some(self.reopen_at.min(triggers)).filter(|&at| at != u64::MAX);
        [deadline, reading, muted, reopen].into_iter().flatten().min()
    }

    /// Sleeps until an event or the timeout, and takes the events.
    fn sleep(&mut self, timeout_ns: Option<u64>, now: u64, events: &mut Events) {
        let mut polled = ALL.map(|notifier| {
            let slot = &self.slots[notifier as usize];
            let waits = self.is_heard(notifier) && slot.mute_until <= now;
            PollFd { fd: if waits { slot.fd } else { -1 }, events: slot.events, revents: 0 }
        });
        let Some(waker) = self.waker else { return };
        let heard = self.listener.map(|listener| listener.wait(waker, &mut polled, timeout_ns));
        if !matches!(heard, Some(Ok(()))) {
            // A limit of open files forbids to wait for so many, or a sandbox ended the listener. One that is only late is heard
            // again.
            let is_there = || self.listener_thread.is_some_and(|thread| thread.load(Acquire) != 0);
            if !(matches!(heard, Some(Err(Errno::ETIMEDOUT))) && is_there()) {
                self.listener = None;
            }
            waker.wait(timeout_ns);
            if self.private {
                let _ = fd::ppoll(&mut polled, Some(0));
            }
        }
        let heard = || ALL.into_iter().zip(polled).filter(|(_, poll)| poll.revents != 0);
        // An event of a group that the process has left does not count.
        let moved = heard().any(|(notifier, _)| notifier.is_of_pressure()) && self.follow();
        for (notifier, poll) in heard().filter(|(notifier, _)| !moved || !notifier.is_of_pressure()) {
            self.take(notifier, poll.revents, now, events);
        }
        // How much is left says what it means.
        self.doubt |= events.is_sign();
        events.woken |= waker.take();
        if waker.main_thread_ended() {
            (events.thread_ended, events.main_thread_ended) = (true, true);
            self.groups.main_thread_has_ended();
        }
    }

    /// How much may still become resident below the tightest limit, read now.
    pub fn measure(&self, tunables: &Tunables) -> Room {
        let scale = tunables.watermark_scale.get();
        let own = || self.readings.limit_room(tunables).into_iter().chain(self.readings.target_room(scale));
        let tightest = self.groups.with(self.private, |memory, _| {
            let of_group = memory.into_iter().flat_map(room::of_group);
            room::tightest(own().chain(self.readings.machine_room()).chain(of_group), scale)
        });
        tightest.unwrap_or_default()
    }

    /// The room as of the last reading, if there was one since the last call.
    pub fn take_room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// The heap was told `room`; by its own count others took `others` bytes since the reading before, or gave so many back.
    /// The next look is by that.
    pub fn note_others(&mut self, room: Room, others: i64) {
        self.pace.note(room, others, monotonic_ns());
    }

    /// Reads what cannot notify.
    fn read(&mut self, now: u64, tunables: &Tunables, events: &mut Events) {
        (self.doubt, self.limit_read) = (false, tunables.limit.get());
        self.follow();
        self.room = Some(self.measure(tunables));
        events.raise(self.readings.limit(tunables), Source::Limit);
        events.raise(self.readings.target(), Source::Limit);
        self.groups.with(self.private, |memory, unified| {
            if let Some(memory) = memory {
                events.raise(Readings::headroom(memory, tunables), Source::GroupHeadroom);
            }
            if self.off {
                return;
            }
            for (level, cause) in self.readings.stalls(unified, thresholds(tunables), now) {
                events.raise(level, cause);
            }
            // The limit may be that of a group above those that can be seen, as a pod's is, or of one in a folder that is hidden.
            // Then what the machine has left says nothing.
            events.is_in_sight = match events.source {
                Some(Source::GroupStall) => memory.is_some_and(|memory| room::of_group(memory).next().is_some()),
                _ => memory.is_some(),
            };
        });
    }

    fn set(&mut self, notifier: Notifier, fd: i32, events: i16) {
        if let Some(listener) = self.listener {
            listener.forget(notifier as usize);
        }
        self.slots[notifier as usize] = Slot { fd, events, ..CLOSED };
    }

    fn close(&mut self, notifier: Notifier) {
        if self.slots[notifier as usize].growth.is_some() {
            self.let_go();
        }
        let slot = core::mem::replace(&mut self.slots[notifier as usize], CLOSED);
        if slot.fd >= 0 {
            if let Some(listener) = self.listener {
                listener.forget(notifier as usize);
            }
            let _ = fd::close(slot.fd);
        }
    }

    /// A source ended: look for it again later.
    fn lose(&mut self, notifier: Notifier, now: u64) {
        self.close(notifier);
        if now.saturating_sub(self.reopened_at) > self.reopen_after {
            // It was there for longer than it was waited for.
            self.reopen_after = REOPEN_NS;
        }
        self.reopen_at = self.reopen_at.min(now + self.reopen_after);
    }
}

const _: () = assert!(ALL.len() <= wake::MOST);

impl Default for Sources {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether triggers are worth their price: a warm heap is read for anyway, and an empty one has nothing to give.
fn wants_triggers(heat: Heat) -> bool {
    !matches!(heat, Heat::Warm | Heat::Empty)
}

fn thresholds(tunables: &Tunables) -> (Threshold, Threshold) {
    let window_us = tunables.psi_window_us.get();
    let make = |kind, stall: u64| Threshold { kind, stall_us: stall.min(window_us), window_us };
    (make(Kind::Some, tunables.psi_some_us.get()), make(Kind::Full, tunables.psi_full_us.get()))
}

mod arm;
mod heard;
mod notifiers;
mod pace;
mod readings;
mod room;

#[cfg(test)]
mod follow_tests;
#[cfg(test)]
mod tests;
