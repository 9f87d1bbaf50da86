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

use super::cgroup::{GroupDir, Membership, Version};
use super::fd::{self, FileKind, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLPRI, PollFd};
use super::memcg::{EventCounts, tightest_room};
use super::pressure_watch::{self, Request};
use super::process::monotonic_ns;
use super::psi::{self, Kind, Threshold};
use super::readings::Readings;
use super::wake::{self, Listener, Waker};
use super::{pressure_level, syscall::Errno, syscall::Result};
use linux_raw_sys::general::{O_DIRECTORY, O_PATH};
pub use weir_core::pressure::Level;
use weir_core::tunables::Tunables;

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
/// Age at which a process is worth triggers.
const TRIGGERS_AFTER_NS: u64 = 10_000 * MS;
/// After a trigger's event, stalls are read for so long, to hear whether they become severe.
const ALERT_NS: u64 = 2_000 * MS;
/// Between two tries to open again what was lost (a removed group, a service manager's socket that ended).
const REOPEN_NS: u64 = 10_000 * MS;

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

impl From<Cause> for weir_core::stats::Cause {
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
    Watch,
}

const ALL: [What; 8] = [
    What::Thread,
    What::SystemStall,
    What::GroupStall,
    What::OwnEvents,
    What::TightestEvents,
    What::LowLevel,
    What::CriticalLevel,
    What::Watch,
];

#[derive(Clone, Copy, Debug)]
struct Slot {
    fd: i32,
    events: i16,
    has_input: bool,
    mute_until: u64,
    counts: EventCounts,
}

const CLOSED: Slot =
    Slot { fd: -1, events: 0, has_input: false, mute_until: 0, counts: EventCounts { high: 0, max: 0, oom: 0 } };

/// The sources of pressure of one process, used by one thread.
pub struct Sources {
    waker: Option<&'static Waker>,
    /// Waits for the slots' descriptors. `None`: they are asked only where the sources are read.
    listener: Option<&'static Listener>,
    /// Whether this thread has its own descriptor table, and so may keep descriptors.
    private: bool,
    slots: [Slot; ALL.len()],
    memory: Option<GroupDir>,
    unified: Option<GroupDir>,
    readings: Readings,
    last_reading: u64,
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
}

/// The service manager's request, kept for when its file must be opened again.
struct WatchRequest {
    path: super::path::FixedPath,
    write: super::path::FixedPath,
}

impl Sources {
    /// Nothing open.
    pub const fn new() -> Self {
        use super::path::FixedPath;
        Self {
            waker: None,
            listener: None,
            private: false,
            slots: [CLOSED; ALL.len()],
            memory: None,
            unified: None,
            readings: Readings::new(),
            last_reading: 0,
            pressure_dir: -1,
            off: false,
            watch: WatchRequest { path: FixedPath::new(), write: FixedPath::new() },
            thresholds: None,
            triggers_at: u64::MAX,
            alert_until: 0,
            reopen_at: u64::MAX,
        }
    }

    /// Opens all sources there are, for the calling thread, which must be Weir's own:
    /// its descriptor table becomes a private, empty one. Sources that are not there or not permitted are left out.
    pub fn open(&mut self, waker: &'static Waker, request: &Request<'_>, tunables: &Tunables) {
        self.private = wake::private_table().is_ok();
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
        let descriptor = super::process::thread_descriptor(thread)?;
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
            return self.memory.as_ref().is_some_and(is_limited);
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
            self.tend(tunables, now);
            let until = if events.woken {
                Some(now)
            } else {
                self.next_stop(deadline, self.next_reading(tunables, heat, now), now)
            };
            self.sleep(until.map(|t| t.saturating_sub(now)), now, &mut events);
            let now = monotonic_ns();
            if self.next_reading(tunables, heat, now).is_some_and(|at| now >= at) {
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
        let group = self.memory.is_some() && !is_open(What::OwnEvents) && !is_open(What::LowLevel);
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
    fn next_stop(&self, deadline: Option<u64>, reading: Option<u64>, now: u64) -> Option<u64> {
        let reading = reading.map(|at| at.max(now));
        let muted = self.slots.iter().filter(|s| s.fd >= 0 && s.mute_until > now).map(|s| s.mute_until).min();
        let reopen = Some(self.reopen_at.min(self.triggers_at)).filter(|&at| at != u64::MAX);
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
        for (what, poll) in ALL.into_iter().zip(polled) {
            if poll.revents != 0 {
                self.take(what, poll.revents, now, events);
            }
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
            What::Watch => {
                slot.mute_until = now + MUTE_NS;
                let heard = revents & slot.events != 0;
                let ended = if slot.has_input { !pressure_watch::discard_input(slot.fd) } else { gone };
                if heard && !ended {
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
        let transient = if self.private { (None, None) } else { open_groups() };
        let memory = self.memory.as_ref().or(transient.0.as_ref());
        let unified = self.unified.as_ref().or(transient.1.as_ref());
        if let Some(memory) = memory {
            events.raise(Readings::headroom(memory, tunables), Cause::GroupHeadroom);
        }
        for (level, cause) in self.readings.stalls(unified, thresholds(tunables), now) {
            events.raise(level, cause);
        }
        [transient.0, transient.1].into_iter().flatten().for_each(|dir| dir.close());
    }

    /// Arms triggers when it is time, opens again what was lost, and arms anew what was armed with thresholds that
    /// have changed since.
    fn tend(&mut self, tunables: &Tunables, now: u64) {
        let changed = self.thresholds.is_some_and(|t| t != thresholds(tunables));
        if now >= self.reopen_at || changed {
            self.reopen_at = u64::MAX;
            ALL.into_iter().filter(|w| *w != What::Thread).for_each(|what| self.close(what));
            self.arm(tunables);
            if self.triggers_at == u64::MAX {
                self.triggers_at = now;
            }
        }
        if now >= self.triggers_at {
            self.triggers_at = u64::MAX;
            self.arm_triggers(tunables);
        }
    }

    fn set(&mut self, what: What, fd: i32, events: i16) {
        if let Some(listener) = self.listener {
            listener.forget(what as usize);
        }
        self.slots[what as usize] = Slot { fd, events, ..CLOSED };
    }

    fn close(&mut self, what: What) {
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
        self.reopen_at = self.reopen_at.min(now + REOPEN_NS);
    }
}

const _: () = assert!(ALL.len() <= wake::MOST);

impl Default for Sources {
    fn default() -> Self {
        Self::new()
    }
}

/// Opening the sources.
impl Sources {
    fn arm(&mut self, tunables: &Tunables) {
        self.thresholds = Some(thresholds(tunables));
        if !self.private || self.off {
            return;
        }
        [self.memory.take(), self.unified.take()].into_iter().flatten().for_each(|dir| dir.close());
        (self.memory, self.unified) = open_groups();
        if !self.watches_pressure_file() {
            self.arm_watch();
        }
        if let Some(memory) = self.memory.take() {
            match memory.version {
                Version::V1 => self.arm_levels(&memory),
                Version::V2 => self.arm_events(&memory, tunables),
            }
            self.memory = Some(memory);
        }
    }

    /// What is slow to close. One trigger a file: how bad it is, the readings after its event tell.
    fn arm_triggers(&mut self, tunables: &Tunables) {
        if !self.private || self.off {
            return;
        }
        let (some, _) = thresholds(tunables);
        let flags = fd::O_RDWR | fd::O_NONBLOCK;
        if let Ok(armed) = psi::arm(|| fd::openat(self.pressure_dir, c"memory", flags, 0), some) {
            self.set(What::SystemStall, armed.fd, POLLPRI);
        }
        if self.watches_pressure_file() {
            self.arm_watch();
        }
        // The service manager's choice stands in for Weir's own.
        let is_watched = self.slots[What::Watch as usize].fd >= 0;
        if let Some(unified) = self.unified.as_ref().filter(|_| !is_watched)
            && let Ok(armed) = psi::arm(|| unified.open_file(0, b"memory.pressure", flags), some)
        {
            self.set(What::GroupStall, armed.fd, POLLPRI);
        }
    }

    /// Whether the service manager has us watch a pressure file, which is a trigger like our own.
    fn watches_pressure_file(&self) -> bool {
        fd::stat(self.watch.path.as_c_str()) == Ok(FileKind::Regular)
    }

    fn arm_watch(&mut self) {
        let path = self.watch.path.as_bytes();
        let write = Some(self.watch.write.as_bytes()).filter(|w| !w.is_empty());
        if path.is_empty() {
            return;
        }
        match pressure_watch::open(path, write) {
            Ok(watched) => {
                self.set(What::Watch, watched.fd, watched.events);
                self.slots[What::Watch as usize].has_input = watched.has_input;
            }
            Err(_) => self.reopen_at = self.reopen_at.min(monotonic_ns() + REOPEN_NS),
        }
    }

    fn arm_levels(&mut self, memory: &GroupDir) {
        for (what, level) in [(What::LowLevel, &b"low"[..]), (What::CriticalLevel, b"critical")] {
            if let Ok(event) = pressure_level::arm(memory, level) {
                self.set(what, event, POLLIN);
            }
        }
    }

    /// The own group's events, and those of the ancestor whose limit is nearest: a limit's events are counted
    /// where the limit is.
    fn arm_events(&mut self, memory: &GroupDir, tunables: &Tunables) {
        let tightest = tightest_room(memory, tunables.headroom_percent.get()).map_or(0, |room| room.up);
        for (what, up) in [(What::OwnEvents, 0), (What::TightestEvents, tightest)] {
            if what == What::TightestEvents && up == 0 {
                continue;
            }
            let Ok(file) = memory.open_file(up, b"memory.events", fd::O_RDONLY) else { continue };
            // Only what changes after a first reading is notified.
            match read_counts(file) {
                Ok(counts) => {
                    self.set(what, file, POLLPRI);
                    self.slots[what as usize].counts = counts;
                }
                Err(_) => {
                    let _ = fd::close(file);
                }
            }
        }
    }
}

/// The group that limits memory, and the one whose stalls are to be heard. The root's are the system's.
fn open_groups() -> (Option<GroupDir>, Option<GroupDir>) {
    let groups = Membership::find();
    let open = |group: Option<_>| GroupDir::open(group.as_ref()?).ok();
    let unified = open(groups.unified).and_then(|dir| {
        let is_root = dir.is_hierarchy_root();
        if is_root {
            dir.close()
        } else {
            return Some(dir);
        }
        None
    });
    (open(groups.memory), unified)
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

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
