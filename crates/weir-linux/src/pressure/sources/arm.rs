//! Opening the sources, and opening them again: what was lost, what has other thresholds, what is of a group that the
//! process has left.

use super::super::events::Heat;
use super::super::group::cgroup::{GroupDir, Version};
use super::super::group::level_events_v1;
use super::super::group::memcg::{EventCounts, tightest_room};
use super::super::{psi, systemd_watch};
use super::notifiers::{ALL, Notifier};
use super::{REOPEN_MOST_NS, REOPEN_NS, Sources, thresholds, wants_triggers};
use crate::os::clock::monotonic_ns;
use crate::os::fd::{self, FileKind, POLLIN, POLLPRI};
use crate::os::file::ring;
use crate::os::rights::sandbox;
use weir_core::telemetry::tunables::Tunables;

impl Sources {
    /// Arms triggers when it is time, opens again what was lost, and arms anew what was armed with thresholds that
    /// have changed since.
    pub(super) fn tend(&mut self, tunables: &Tunables, heat: Heat, now: u64) {
        let changed = self.thresholds.is_some_and(|t| t != thresholds(tunables));
        if now >= self.reopen_at || changed {
            // Only a look for what was lost doubles the time until the next: not a setting's change, nor a move.
            if (1..=now).contains(&self.reopen_at) {
                self.reopen_after = (self.reopen_after * 2).min(REOPEN_MOST_NS);
            }
            (self.reopen_at, self.reopened_at) = (u64::MAX, now);
            ALL.into_iter().filter(|notifier| notifier.is_of_pressure()).for_each(|notifier| self.close(notifier));
            self.arm(tunables);
            if self.triggers_at == u64::MAX {
                self.triggers_at = now;
            }
        }
        if now >= self.triggers_at && wants_triggers(heat) {
            self.triggers_at = u64::MAX;
            self.arm_triggers(tunables);
        }
    }

    /// Has all notifications armed anew at the next wait.
    pub fn rearm(&mut self) {
        self.reopen_at = 0;
    }

    /// Goes after the process where it was moved to another group; whether it was. The next turn of the wait opens the
    /// new groups' sources.
    pub(super) fn follow(&mut self) -> bool {
        if !self.private || !self.groups.have_changed() {
            return false;
        }
        ALL.into_iter().filter(|notifier| notifier.is_of_group()).for_each(|notifier| self.close(notifier));
        self.groups.open();
        self.readings.forget_group();
        (self.reopen_at, self.reopen_after, self.doubt) = (0, REOPEN_NS, true);
        true
    }

    pub(super) fn arm(&mut self, tunables: &Tunables) {
        self.thresholds = Some(thresholds(tunables));
        if !self.private {
            return;
        }
        self.groups.open();
        if self.off {
            return;
        }
        if !self.watches_pressure_file() {
            self.arm_watch();
        }
        if let Some(memory) = self.groups.memory.take() {
            match memory.version {
                Version::V1 => self.arm_levels(&memory),
                Version::V2 => self.arm_events(&memory, tunables),
            }
            self.groups.memory = Some(memory);
        }
    }

    /// Arms the triggers, which are slow to close. One for each file: the readings after its event show how bad it is.
    fn arm_triggers(&mut self, tunables: &Tunables) {
        if !self.private || self.off {
            return;
        }
        let (some, _) = thresholds(tunables);
        let flags = fd::O_RDWR | fd::O_NONBLOCK;
        if let Ok(armed) = psi::arm(|| fd::openat(self.pressure_dir, c"memory", flags, 0), some) {
            self.set_trigger(Notifier::SystemStall, armed);
        }
        if self.watches_pressure_file() {
            self.arm_watch();
        }
        // The service manager's choice stands in for Weir's own.
        let is_watched = self.slots[Notifier::Watch as usize].fd >= 0;
        if let Some(unified) = self.groups.unified.as_ref().filter(|_| !is_watched)
            && let Ok(armed) = psi::arm(|| unified.open_file(0, b"memory.pressure", flags), some)
        {
            self.set_trigger(Notifier::GroupStall, armed);
        }
        self.hold_triggers();
    }

    fn set_trigger(&mut self, notifier: Notifier, armed: psi::Armed) {
        self.set(notifier, armed.fd, POLLPRI);
        self.slots[notifier as usize].growth = Some(armed.growth);
    }

    /// Registers the triggers with an io_uring instance, so that closing them does not block. Not under a seccomp
    /// filter, which may kill the process for the call.
    fn hold_triggers(&mut self) {
        let mut files = [0; ALL.len()];
        let mut count = 0;
        for slot in self.slots.iter().filter(|slot| slot.growth.is_some()) {
            files[count] = slot.fd;
            count += 1;
        }
        self.let_go();
        if count > 0 && !sandbox::is_filtered() {
            self.ring = ring::hold(&files[..count]).unwrap_or(-1);
        }
    }

    /// The triggers are no longer held.
    pub(super) fn let_go(&mut self) {
        let ring = core::mem::replace(&mut self.ring, -1);
        if ring >= 0 {
            let _ = fd::close(ring);
        }
    }

    /// Whether the service manager has us watch a pressure file, which is a trigger like our own.
    fn watches_pressure_file(&self) -> bool {
        fd::stat(self.watch.path.as_c_str()).is_ok_and(|found| found.kind == FileKind::Regular)
    }

    fn arm_watch(&mut self) {
        let path = self.watch.path.as_bytes();
        let write = Some(self.watch.write.as_bytes()).filter(|w| !w.is_empty());
        if path.is_empty() {
            return;
        }
        match systemd_watch::open(path, write) {
            Ok(watched) => {
                self.set(Notifier::Watch, watched.fd, watched.events);
                let slot = &mut self.slots[Notifier::Watch as usize];
                (slot.has_input, slot.growth) = (watched.has_input, watched.growth);
            }
            Err(_) => self.reopen_at = self.reopen_at.min(monotonic_ns() + self.reopen_after),
        }
    }

    fn arm_levels(&mut self, memory: &GroupDir) {
        for (notifier, level) in [(Notifier::LowLevel, "low"), (Notifier::CriticalLevel, "critical")] {
            if let Ok(event) = level_events_v1::arm_own(memory, level) {
                self.set(notifier, event, POLLIN);
            }
        }
        // Here too where the group is the hierarchy's root: the process may be moved to a group below.
        let hint = (0..=memory.depth).rev().find_map(|up| level_events_v1::arm(memory, up, "low,hierarchy").ok());
        if let Some(event) = hint {
            self.set(Notifier::Hint, event, POLLIN);
        }
    }

    /// Arms the own group's events, and those of the ancestor whose limit is nearest, as a limit's events are counted
    /// where the limit is. Arms those of the highest ancestor that has any too: it counts what happens in all groups
    /// below.
    fn arm_events(&mut self, memory: &GroupDir, tunables: &Tunables) {
        let tightest = tightest_room(memory, tunables.headroom_percent.get()).map_or(0, |room| room.up);
        self.arm_counts(memory, Notifier::OwnEvents, 0, b"memory.events");
        if tightest > 0 {
            // Without those of other groups below it, which have limits of their own; from Linux 5.2 on. Before, the hint has to do.
            self.arm_counts(memory, Notifier::TightestEvents, tightest, b"memory.events.local");
        }
        let _ = (1..=memory.depth).rev().find(|&up| self.arm_counts(memory, Notifier::Hint, up, b"memory.events"));
    }

    fn arm_counts(&mut self, memory: &GroupDir, notifier: Notifier, up: usize, name: &[u8]) -> bool {
        let Ok(file) = memory.open_file(up, name, fd::O_RDONLY) else { return false };
        // Only what changes after a first reading is notified.
        let counts = EventCounts::read(file);
        match counts {
            Ok(counts) => {
                self.set(notifier, file, POLLPRI);
                self.slots[notifier as usize].counts = counts;
            }
            Err(_) => {
                let _ = fd::close(file);
            }
        }
        counts.is_ok()
    }
}
