//! All that can tell of memory pressure, behind one wait.
//!
//! The thread that waits gets a descriptor table of its own (see [`super::wake`]), so the descriptors kept here are
//! out of the program's sight and reach. Where a sandbox refuses that, nothing is kept open at all: everything is
//! then read at intervals while the heap is warm.
//!
//! Pressure files are read at intervals too, and their triggers armed only in a process that has lived for a while:
//! closing a trigger waits for the kernel's RCU readers, about 12 ms each, which every process would pay at its exit.
//! An unprivileged trigger is slower than reading anyway (the kernel looks every 2 s); what triggers are for is the
//! process that sleeps.

use super::cgroup::GroupDir;
use super::groups::{Groups, open_groups};
use super::memcg::{EventCounts, tightest_room};
use super::pressure_watch::{self, Request};
use super::psi::{Growth, Kind, Threshold};
use super::readings::Readings;
use super::wake::{self, Listener, Waker};
use crate::os::descriptor_table;
use crate::os::fd::{self, POLLERR, POLLHUP, POLLIN, POLLNVAL, PollFd};
use crate::os::process::monotonic_ns;
use crate::os::syscall::{Errno, Result};
use linux_raw_sys::general::{O_DIRECTORY, O_PATH};
pub use weir_core::base::level::Level;
use weir_core::telemetry::tunables::Tunables;

const MS: u64 = 1_000_000;
/// Between two readings of what cannot notify, while the heap is warm.
const READ_INTERVAL_NS: u64 = 250 * MS;
/// The same while it rests and has a limit of its own, which nothing but reading tells of; and after a trigger's event.
const LIMIT_INTERVAL_NS: u64 = 1_000 * MS;
/// The same while it rests and a source that should notify does not: the window of an unprivileged trigger.
const DEAF_INTERVAL_NS: u64 = 2_000 * MS;
/// A source that fires without a rate limit of its own is not listened to for so long after an event. Nothing is
/// lost: it stays readable.
const MUTE_NS: u64 = 100 * MS;
/// The same for an ancestor's events, at most: each that concerns another group doubles the time, so that a system of many
/// processes is not woken by each group at its limit.
const MUTE_HINT_NS: u64 = 600_000 * MS;
/// Age at which a process is worth triggers.
const TRIGGERS_AFTER_NS: u64 = 10_000 * MS;
/// After a trigger's event, stalls are read for so long, to hear whether they become severe.
const ALERT_NS: u64 = 2_000 * MS;
/// Until the first try to open again what was lost (a removed group, a service manager's socket that ended). Each try
/// doubles the time until the next: what never comes is not to wake a process at rest for ever.
const REOPEN_NS: u64 = 10_000 * MS;
/// The longest such time.
const REOPEN_MOST_NS: u64 = 3_600_000 * MS;

/// How much there may be to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Nothing worth a look.
    Cold,
    /// Nothing that goes without pressure, but a heap worth the question.
    Resting,
    /// Something was freed lately.
    Warm,
}

/// Who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Tasks of the whole system wait for memory.
    SystemStall,
    /// Tasks of the own control group wait for memory.
    GroupStall,
    /// The group reached a limit (`memory.events`), or reclaims (v1 `memory.pressure_level`).
    GroupEvent,
    /// Little is left below a limit of the group.
    GroupHeadroom,
    /// The service manager.
    ServiceManager,
    /// Little is left below the limit that the process's user set.
    Limit,
}

impl From<Cause> for weir_core::base::cause::Cause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Limit => Self::Limit,
            _ => Self::Pressure,
        }
    }
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The worst that was heard.
    pub level: Level,
    /// From whom; there is one whenever the level is not [`Level::None`].
    pub cause: Option<Cause>,
    /// Somebody woke the thread.
    pub woken: bool,
    /// The time was up.
    pub timed_out: bool,
    /// The thread of the program that [`Sources::watch_thread`] or [`Waker::watch_main_thread`] was asked for has ended.
    pub thread_ended: bool,
}

impl Events {
    fn raise(&mut self, level: Level, cause: Cause) {
        if level > self.level {
            (self.level, self.cause) = (level, Some(cause));
        }
    }
}

/// A source that notifies. The order is that of [`Sources::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A thread of the program ended.
    Thread,
    SystemStall,
    GroupStall,
    OwnEvents,
    TightestEvents,
    LowLevel,
    CriticalLevel,
    /// The highest ancestor that can be listened to: memory is short somewhere below it, here perhaps, or where the process
    /// was moved.
    Hint,
    Watch,
}

impl What {
    /// Whether it is a group's, and so another one after a move.
    fn is_of_group(self) -> bool {
        !matches!(self, Self::Thread | Self::SystemStall | Self::Watch)
    }
}

const ALL: [What; 9] = [
    What::Thread,
    What::SystemStall,
    What::GroupStall,
    What::OwnEvents,
    What::TightestEvents,
    What::LowLevel,
    What::CriticalLevel,
    What::Hint,
    What::Watch,
];

#[derive(Clone, Copy, Debug)]
struct Slot {
    fd: i32,
    events: i16,
    has_input: bool,
    mute_until: u64,
    /// For how long the next event mutes it.
    mute_ns: u64,
    counts: EventCounts,
    /// Of a pressure file: what tells a trigger's events from false ones.
    growth: Option<Growth>,
}

const CLOSED: Slot = Slot {
    fd: -1,
    events: 0,
    has_input: false,
    mute_until: 0,
    mute_ns: MUTE_NS,
    counts: EventCounts { high: 0, max: 0, oom: 0 },
    growth: None,
};

/// The sources of pressure of one process, used by one thread.
pub struct Sources {
    waker: Option<&'static Waker>,
    /// Waits for the slots' descriptors. `None`: they are asked only where the sources are read.
    listener: Option<&'static Listener>,
    /// Whether this thread has its own descriptor table, and so may keep descriptors.
    private: bool,
    slots: [Slot; ALL.len()],
    groups: Groups,
    /// Holds the triggers' files, so that their end is not waited for ([`crate::os::ring`]); -1: nothing does.
    ring: i32,
    readings: Readings,
    last_reading: u64,
    /// What was heard is to be looked into at once.
    doubt: bool,
    /// The directory of the system's pressure files, which a `chroot` does not hide.
    pressure_dir: i32,
    /// What the service manager asked for: nothing to watch, or not to react at all.
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
}

/// The service manager's request, kept for when its file must be opened again.
struct WatchRequest {
    path: crate::os::path::FixedPath,
    write: crate::os::path::FixedPath,
}

impl Sources {
    /// Nothing open.
    pub const fn new() -> Self {
        use crate::os::path::FixedPath;
        Self {
            waker: None,
            listener: None,
            private: false,
            slots: [CLOSED; ALL.len()],
            groups: Groups::new(),
            ring: -1,
            readings: Readings::new(),
            last_reading: 0,
            doubt: false,
            pressure_dir: -1,
            off: false,
            watch: WatchRequest { path: FixedPath::new(), write: FixedPath::new() },
            thresholds: None,
            triggers_at: u64::MAX,
            alert_until: 0,
            reopen_at: u64::MAX,
            reopen_after: REOPEN_NS,
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

    /// From now on what notifies is waited for by `listener`, whose thread shares this one's descriptor table.
    pub fn listen_with(&mut self, listener: &'static Listener) {
        self.listener = Some(listener);
    }

    /// Has the end of a thread of the program be heard, once. An error: nothing tells of it.
    pub fn watch_thread(&mut self, thread: u32) -> Result<()> {
        self.close(What::Thread);
        if self.listener.is_none() {
            return Err(Errno::EINVAL);
        }
        let descriptor = crate::os::process::thread_descriptor(thread)?;
        self.set(What::Thread, descriptor, POLLIN);
        Ok(())
    }

    /// Whether the calling thread has a descriptor table of its own, and may keep descriptors.
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// Whether a limit holds for the group, its own or one above.
    pub fn is_limited(&self) -> bool {
        let is_limited = |group: &GroupDir| tightest_room(group, 0).is_some();
        if self.private {
            return self.groups.memory.as_ref().is_some_and(is_limited);
        }
        let (memory, unified) = open_groups();
        let limited = memory.as_ref().is_some_and(is_limited);
        [memory, unified].into_iter().flatten().for_each(|group| group.close());
        limited
    }

    /// Waits for pressure, a wake-up, or the timeout. What cannot notify is read at intervals, which depend on the
    /// heap's `heat`; a cold one with no limit of its own sleeps undisturbed.
    pub fn wait(&mut self, tunables: &Tunables, heat: Heat, timeout_ns: Option<u64>) -> Events {
        let deadline = timeout_ns.map(|t| monotonic_ns().saturating_add(t));
        loop {
            let mut events = Events { woken: self.waker.is_some_and(Waker::take), ..Events::default() };
            let now = monotonic_ns();
            self.tend(tunables, heat, now);
            let until = if events.woken {
                Some(now)
            } else {
                self.next_stop(deadline, self.next_reading(tunables, heat, now), heat, now)
            };
            self.sleep(until.map(|t| t.saturating_sub(now)), now, &mut events);
            let now = monotonic_ns();
            if core::mem::take(&mut self.doubt) || self.next_reading(tunables, heat, now).is_some_and(|at| now >= at) {
                self.last_reading = now;
                self.read(now, tunables, &mut events);
            }
            events.timed_out = deadline.is_some_and(|d| now >= d);
            if events.woken || events.timed_out || events.thread_ended || events.level > Level::None {
                return events;
            }
        }
    }

    /// When to read next, if at all.
    fn next_reading(&self, tunables: &Tunables, heat: Heat, now: u64) -> Option<u64> {
        let is_alert = heat == Heat::Resting && now < self.alert_until;
        let interval = if heat == Heat::Warm {
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
        let is_open = |what: What| self.slots[what as usize].fd >= 0;
        let group = self.groups.memory.is_some() && !is_open(What::OwnEvents) && !is_open(What::LowLevel);
        !self.off && (self.listener.is_none() || !is_open(What::SystemStall) || group)
    }

    /// Reads once what can be read, on a thread of the program's: for a process that has no thread of Weir's. Keeps
    /// nothing open.
    pub fn look(&mut self, request: &Request<'_>, tunables: &Tunables) -> Events {
        self.off = matches!(request, Request::Off);
        let mut events = Events::default();
        self.read(monotonic_ns(), tunables, &mut events);
        events
    }

    /// The next moment at which something is to be done without an event.
    fn next_stop(&self, deadline: Option<u64>, reading: Option<u64>, heat: Heat, now: u64) -> Option<u64> {
        let reading = reading.map(|at| at.max(now));
        let muted = self.slots.iter().filter(|s| s.fd >= 0 && s.mute_until > now).map(|s| s.mute_until).min();
        let triggers = if heat == Heat::Warm { u64::MAX } else { self.triggers_at };
        let reopen = Some(self.reopen_at.min(triggers)).filter(|&at| at != u64::MAX);
        [deadline, reading, muted, reopen].into_iter().flatten().min()
    }

    /// Sleeps until an event or the timeout, and takes the events.
    fn sleep(&mut self, timeout_ns: Option<u64>, now: u64, events: &mut Events) {
        let mut polled = self.slots.map(|slot| PollFd {
            fd: if slot.mute_until > now { -1 } else { slot.fd },
            events: slot.events,
            revents: 0,
        });
        let Some(waker) = self.waker else { return };
        let heard = self.listener.map(|listener| listener.wait(waker, &mut polled, timeout_ns));
        if !matches!(heard, Some(Ok(()))) {
            // A sandbox ended the listener, or a limit of open files forbids to wait for so many.
            self.listener = None;
            waker.wait(timeout_ns);
            if self.private {
                let _ = fd::ppoll(&mut polled, Some(0));
            }
        }
        let heard = || ALL.into_iter().zip(polled).filter(|(_, poll)| poll.revents != 0);
        // What a group says that the process has left says nothing.
        let moved = heard().any(|(what, _)| what != What::Thread) && self.follow();
        for (what, poll) in heard().filter(|(what, _)| !moved || *what == What::Thread) {
            self.take(what, poll.revents, now, events);
        }
        events.woken |= waker.take();
        events.thread_ended |= waker.main_thread_ended();
    }

    /// Takes one source's event.
    fn take(&mut self, what: What, revents: i16, now: u64, events: &mut Events) {
        let slot = &mut self.slots[what as usize];
        let gone = revents & (POLLERR | POLLHUP | POLLNVAL) != 0;
        match what {
            What::Thread => {
                self.close(what);
                events.thread_ended = true;
            }
            What::SystemStall | What::GroupStall => {
                if gone {
                    return self.lose(what, now);
                }
                match slot.growth.as_mut().map(|growth| growth.is_enough(slot.fd)) {
                    Some(Ok(true)) => {}
                    Some(Err(_)) => return self.lose(what, now),
                    _ => return,
                }
                let cause = if what == What::SystemStall { Cause::SystemStall } else { Cause::GroupStall };
                events.raise(Level::Some, cause);
                self.alert_until = now + ALERT_NS;
            }
            What::OwnEvents | What::TightestEvents => {
                slot.mute_until = now + MUTE_NS;
                match read_counts(slot.fd) {
                    // kernfs raises POLLERR together with every POLLPRI; only a failing read means "gone".
                    Ok(counts) => {
                        let level = counts_level(core::mem::replace(&mut slot.counts, counts), counts);
                        events.raise(level, Cause::GroupEvent);
                    }
                    Err(_) => self.lose(what, now),
                }
            }
            What::LowLevel | What::CriticalLevel => {
                slot.mute_until = now + MUTE_NS;
                if fd::eventfd_take(slot.fd).is_err() {
                    return self.lose(what, now);
                }
                let critical = what == What::CriticalLevel;
                events.raise(if critical { Level::Severe } else { Level::Some }, Cause::GroupEvent);
            }
            What::Hint => {
                let again = now < slot.mute_until + slot.mute_ns;
                slot.mute_ns = if again { (slot.mute_ns * 2).min(MUTE_HINT_NS) } else { MUTE_NS };
                slot.mute_until = now + slot.mute_ns;
                // v1 has an eventfd, v2 the group's counters.
                let taken = if slot.events == POLLIN {
                    fd::eventfd_take(slot.fd).map(drop)
                } else {
                    read_counts(slot.fd).map(drop)
                };
                match taken {
                    Ok(()) => self.doubt = true,
                    Err(_) => self.lose(what, now),
                }
            }
            What::Watch => {
                slot.mute_until = now + MUTE_NS;
                let heard = revents & slot.events != 0;
                let ended = if slot.has_input { !pressure_watch::discard_input(slot.fd) } else { gone };
                let is_true = slot.growth.as_mut().is_none_or(|growth| growth.is_enough(slot.fd) == Ok(true));
                if heard && is_true && !ended {
                    // Its default answer is a full trim (`malloc_trim`), and it says so once, not by degrees.
                    events.raise(Level::Severe, Cause::ServiceManager);
                }
                if ended {
                    self.lose(what, now);
                }
            }
        }
    }

    /// Reads what cannot notify.
    fn read(&mut self, now: u64, tunables: &Tunables, events: &mut Events) {
        events.raise(self.readings.limit(tunables), Cause::Limit);
        if self.off {
            return;
        }
        self.follow();
        let transient = if self.private { (None, None) } else { open_groups() };
        let memory = self.groups.memory.as_ref().or(transient.0.as_ref());
        let unified = self.groups.unified.as_ref().or(transient.1.as_ref());
        if let Some(memory) = memory {
            events.raise(Readings::headroom(memory, tunables), Cause::GroupHeadroom);
        }
        for (level, cause) in self.readings.stalls(unified, thresholds(tunables), now) {
            events.raise(level, cause);
        }
        [transient.0, transient.1].into_iter().flatten().for_each(|dir| dir.close());
    }

    fn set(&mut self, what: What, fd: i32, events: i16) {
        if let Some(listener) = self.listener {
            listener.forget(what as usize);
        }
        self.slots[what as usize] = Slot { fd, events, ..CLOSED };
    }

    fn close(&mut self, what: What) {
        if self.slots[what as usize].growth.is_some() {
            self.let_go();
        }
        let slot = core::mem::replace(&mut self.slots[what as usize], CLOSED);
        if slot.fd >= 0 {
            if let Some(listener) = self.listener {
                listener.forget(what as usize);
            }
            let _ = fd::close(slot.fd);
        }
    }

    /// A source ended: look for it again later.
    fn lose(&mut self, what: What, now: u64) {
        self.close(what);
        self.reopen_at = self.reopen_at.min(now + self.reopen_after);
    }
}

const _: () = assert!(ALL.len() <= wake::MOST);

impl Default for Sources {
    fn default() -> Self {
        Self::new()
    }
}

fn thresholds(tunables: &Tunables) -> (Threshold, Threshold) {
    let window_us = tunables.psi_window_us.get();
    let make = |kind, stall: u64| Threshold { kind, stall_us: stall.min(window_us), window_us };
    (make(Kind::Some, tunables.psi_some_us.get()), make(Kind::Full, tunables.psi_full_us.get()))
}

fn read_counts(file: i32) -> Result<EventCounts> {
    let mut buf = [0u8; 512];
    let len = fd::pread(file, &mut buf, 0)?;
    if len == 0 {
        return Err(Errno::ENODATA);
    }
    Ok(EventCounts::parse(&buf[..len]))
}

/// A group at its hard limit may only be full of file pages, so `max` alone is not severe; the room that is left
/// is read besides. A kill is.
fn counts_level(before: EventCounts, now: EventCounts) -> Level {
    if now.oom > before.oom {
        Level::Severe
    } else if now.high > before.high || now.max > before.max {
        Level::Some
    } else {
        Level::None
    }
}

#[path = "sources_arm.rs"]
mod arm;

#[cfg(test)]
#[path = "sources_follow_tests.rs"]
mod follow_tests;
#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
