//! Tests of [`super`]: events without cause, and moves to another group.

use super::heard::MUTE_HINT_NS;
use super::tests::{PATIENCE_NS, with_sources};
use super::*;
use crate::os::fd::POLLPRI;
use crate::pressure::psi::Growth;
use crate::pressure::sources::notifiers::MUTE_NS;
use weir_testing::wait_until;

/// A file with the text of a pressure file, opened where it is put in.
pub(super) struct Pressure(tempfile::TempPath);

impl Pressure {
    pub(super) fn file(total: u64) -> Self {
        let file = Self(tempfile::NamedTempFile::new().unwrap().into_temp_path());
        file.say(total);
        file
    }

    pub(super) fn say(&self, total: u64) {
        std::fs::write(&self.0, std::format!("some avg10=0.00 total={total}\nfull avg10=0.00 total=0\n")).unwrap();
    }

    /// As if a trigger of 70 ms had just been armed on it.
    pub(super) fn put_in(&self, sources: &mut Sources, what: Notifier) {
        let path = std::ffi::CString::new(self.0.to_str().unwrap()).unwrap();
        let file = fd::open(&path, fd::O_RDONLY).unwrap();
        sources.set(what, file, POLLPRI);
        sources.slots[what as usize].growth = Some(Growth::begin(file, Kind::Some, 70_000).unwrap());
    }
}

#[test]
fn an_event_without_stalls_behind_it_is_none() {
    with_sources(&Request::Unset, |sources, _, _| {
        for (what, cause, level) in [
            (Notifier::SystemStall, Source::SystemStall, Level::Some),
            (Notifier::GroupStall, Source::GroupStall, Level::Some),
            (Notifier::Watch, Source::ServiceManager, Level::Severe),
        ] {
            let stalls = Pressure::file(20_000_000);
            stalls.put_in(sources, what);
            let mut hear = || {
                let mut events = Events::default();
                sources.take(what, POLLPRI, monotonic_ns(), &mut events);
                events
            };
            assert_eq!(hear(), Events::default(), "armed");
            stalls.say(20_000_233);
            assert_eq!(hear(), Events::default(), "a stall of 233 us");
            stalls.say(20_070_000);
            let heard = hear();
            assert_eq!((heard.level, heard.source), (level, Some(cause)));
            assert_eq!(hear(), Events::default(), "heard once");
        }
        assert_eq!(sources.reopen_at, u64::MAX, "nothing was lost");
    });
}

#[test]
fn a_process_that_is_moved_is_followed_at_the_next_reading_and_event() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let path_c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        std::fs::write(&path, "4:memory:/here\n0::/\n").unwrap();
        sources.groups.membership = fd::open(&path_c, fd::O_RDONLY).unwrap();
        sources.groups.open();
        let event = |sources: &mut Sources| {
            let fd = fd::eventfd().unwrap();
            sources.set(Notifier::LowLevel, fd, POLLIN);
            fd::eventfd_signal(fd).unwrap();
        };
        event(sources);
        let heard = sources.wait(tunables, Heat::Cold, Some(PATIENCE_NS));
        assert_eq!((heard.level, heard.source), (Level::Some, Some(Source::GroupEvent)), "not moved");
        assert!(sources.take_room().is_some(), "what is left says what the event means");
        // At rest: the event of the group that was left counts for nothing, and the new group's sources are opened.
        std::fs::write(&path, "4:memory:/there\n0::/\n").unwrap();
        assert!(sources.groups.have_changed());
        sources.last_reading = 0;
        event(sources);
        wait_until("the move to be noticed by the event", || {
            assert_ne!(sources.wait(tunables, Heat::Cold, Some(50 * MS)).source, Some(Source::GroupEvent));
            !sources.groups.have_changed()
        });
        assert!(sources.last_reading != 0 && sources.take_room().is_some(), "its room is read at once");
        // The listener may tell once more of what was closed.
        wait_until("nothing more to be heard", || sources.wait(tunables, Heat::Cold, Some(MS)).timed_out);
        assert_eq!(sources.reopen_at, u64::MAX, "and it is listened to");
        // Warm: at the next reading, with no event at all.
        std::fs::write(&path, "4:memory:/elsewhere\n0::/\n").unwrap();
        wait_until("the move to be noticed without an event", || {
            sources.wait(tunables, Heat::Warm, Some(400 * MS));
            !sources.groups.have_changed()
        });
    });
}

#[test]
fn hints_that_are_for_others_become_rare() {
    with_sources(&Request::Unset, |sources, _, _| {
        let event = fd::eventfd().unwrap();
        sources.set(Notifier::Hint, event, POLLIN);
        let mut now = monotonic_ns();
        let mut heard = 0;
        // A group that is always at its limit, for a day.
        let end = now + 86_400_000 * MS;
        while now < end {
            fd::eventfd_signal(event).unwrap();
            let mut events = Events::default();
            sources.take(Notifier::Hint, POLLIN, now, &mut events);
            assert_eq!(events, Events::default(), "a hint is no pressure");
            assert!(core::mem::take(&mut sources.doubt), "but a reason to look");
            heard += 1;
            now = sources.slots[Notifier::Hint as usize].mute_until;
        }
        assert!((144..170).contains(&heard), "{heard} looks");
        // After a time without any it is heard as soon as at first.
        sources.take(Notifier::Hint, POLLIN, now + 2 * MUTE_HINT_NS, &mut Events::default());
        assert_eq!(sources.slots[Notifier::Hint as usize].mute_ns, MUTE_NS);
    });
}

#[test]
fn what_never_comes_is_looked_for_ever_more_rarely() {
    static REQUEST: Request<'static> = Request::Watch { path: b"/no/such/file", write: None };
    with_sources(&REQUEST, |sources, tunables, _| {
        let (mut now, mut tries) = (monotonic_ns(), 0);
        let end = now + 86_400_000 * MS;
        while now < end {
            assert!(sources.reopen_at < u64::MAX, "still looked for");
            let begin = monotonic_ns();
            sources.tend(tunables, Heat::Warm, sources.reopen_at);
            // The try itself reads the clock: as if it had been made when it was due.
            let wait = sources.reopen_at.saturating_sub(begin);
            (now, tries) = (now + wait, tries + 1);
        }
        assert!((24..40).contains(&tries), "{tries} tries a day");
    });
}

#[test]
fn settings_that_arm_anew_put_off_no_later_look() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        let now = monotonic_ns();
        for _ in 0..10 {
            sources.rearm();
            sources.tend(tunables, Heat::Warm, now);
        }
        tunables.psi_some_us.set(80_000);
        sources.tend(tunables, Heat::Warm, now);
        sources.lose(Notifier::GroupStall, now);
        assert_eq!(sources.reopen_at, now + REOPEN_NS);
    });
}

#[test]
fn triggers_are_held_so_that_nobody_waits_for_their_end() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        sources.triggers_at = 0;
        sources.wait(tunables, Heat::Warm, Some(MS));
        assert_eq!((sources.triggers_at, sources.ring), (0, -1), "a warm heap needs none");
        sources.wait(tunables, Heat::Resting, Some(MS));
        assert_eq!(sources.triggers_at, u64::MAX);
        let is_armed = sources.slots[Notifier::SystemStall as usize].fd >= 0;
        let is_possible = !crate::os::rights::sandbox::is_filtered() && {
            let probe = crate::os::file::ring::hold(&[sources.pressure_dir]);
            let probe = probe.or_else(|_| crate::os::file::ring::hold(&[sources.groups.membership]));
            probe.is_ok_and(|ring| fd::close(ring).is_ok())
        };
        if !is_armed || !is_possible {
            weir_testing::skip!("no trigger, or no io_uring here");
            return;
        }
        assert!(sources.ring >= 0);
        sources.close(Notifier::SystemStall);
        assert_eq!(sources.ring, -1);
    });
}
