//! Tests of [`super`]: real wake-ups, real files, each on a thread of its own as in use.

use super::*;
use crate::os::fd::{FileKind, POLLERR, POLLPRI};
use crate::os::process::gettid;
use crate::pressure::group::cgroup::Version;
use std::io::Write;

/// The bound of a wait for what is sure to come.
pub const PATIENCE_NS: u64 = weir_testing::PATIENCE.as_nanos() as u64;
/// Stack of the test threads: less than the background thread's, although these frames are not optimised.
const STACK: usize = 56 << 10;

/// The number of a listener's thread that has not ended.
static LISTENERS_NUMBER: AtomicU32 = AtomicU32::new(1);

/// Runs `test` on a new thread with sources opened there.
pub(super) fn with_sources<T: Send + 'static>(
    request: &'static Request<'static>,
    test: impl FnOnce(&mut Sources, &Tunables, &'static Waker) -> T + Send + 'static,
) -> T {
    let waker: &'static Waker = std::boxed::Box::leak(std::boxed::Box::new(Waker::new()));
    let body = move || {
        let mut sources = std::boxed::Box::new(Sources::new());
        let tunables = Tunables::new();
        sources.open(waker, request, &tunables);
        let listener: &'static Listener = std::boxed::Box::leak(std::boxed::Box::new(Listener::new()));
        // SAFETY: there is no listener yet.
        unsafe { listener.open() }.unwrap();
        // A thread started here shares the table.
        let thread = std::thread::spawn(|| listener.listen(waker));
        sources.listen_with(listener, &LISTENERS_NUMBER);
        let result = test(&mut sources, &tunables, waker);
        listener.end();
        thread.join().unwrap();
        result
    };
    std::thread::Builder::new().stack_size(STACK).spawn(body).unwrap().join().unwrap()
}

/// Closes what notifies: what happens on the machine meanwhile is not to be heard.
fn hear_nothing(sources: &mut Sources) {
    ALL.into_iter().for_each(|notifier| sources.close(notifier));
}

/// A thread that wakes the calling one as soon as that sleeps.
fn wake_once_asleep(waker: &'static Waker) -> std::thread::JoinHandle<()> {
    once_asleep(|| waker.wake())
}

/// A thread that does something as soon as the calling one sleeps.
fn once_asleep(act: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    let stat = std::format!("/proc/self/task/{}/stat", gettid());
    let is_asleep = move || {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit_once(") ").unwrap().1.starts_with('S')
    };
    std::thread::spawn(move || {
        weir_testing::wait_until("the sleep", is_asleep);
        act();
    })
}

#[test]
fn a_wake_up_ends_a_wait_and_a_timeout_too() {
    with_sources(&Request::Off, |sources, tunables, waker| {
        assert!(sources.private);
        let quiet = sources.wait(tunables, Heat::Cold, Some(5 * MS));
        assert_eq!(quiet, Events { timed_out: true, ..Events::default() });
        waker.wake();
        assert!(sources.wait(tunables, Heat::Cold, Some(PATIENCE_NS)).woken);
        let other = wake_once_asleep(waker);
        assert!(sources.wait(tunables, Heat::Cold, Some(PATIENCE_NS)).woken);
        other.join().unwrap();
    });
}

/// A tracer may hold the listener alone, and on a busy machine it may get no CPU for long.
#[test]
fn a_listener_that_is_late_is_heard_again() {
    let waker: &'static Waker = std::boxed::Box::leak(std::boxed::Box::new(Waker::new()));
    let listener: &'static Listener = std::boxed::Box::leak(std::boxed::Box::new(Listener::new()));
    let body = move || {
        let (mut sources, tunables) = (std::boxed::Box::new(Sources::new()), Tunables::new());
        sources.open(waker, &Request::Off, &tunables);
        // SAFETY: there is no listener yet.
        unsafe { listener.open() }.unwrap();
        sources.listen_with(listener, &LISTENERS_NUMBER);
        sources.wait(&tunables, Heat::Cold, Some(MS));
        // It has the turn, and does not end it.
        let event = fd::eventfd().unwrap();
        assert!(sources.watch_control(Some(event)));
        assert!(sources.wait(&tunables, Heat::Cold, Some(MS)).timed_out);
        let thread = std::thread::spawn(|| listener.listen(waker));
        for _ in 0..2 {
            let other = once_asleep(move || fd::eventfd_signal(event).unwrap());
            let heard = sources.wait(&tunables, Heat::Cold, Some(PATIENCE_NS));
            assert!(heard.control && !heard.timed_out, "{heard:?}");
            other.join().unwrap();
            fd::eventfd_take(event).unwrap();
        }
        assert!(listener.end());
        thread.join().unwrap();
    };
    std::thread::Builder::new().stack_size(STACK).spawn(body).unwrap().join().unwrap();
}

#[test]
fn without_a_table_of_its_own_it_still_wakes_and_reads() {
    with_sources(&Request::Off, |sources, tunables, waker| {
        sources.private = false;
        // While it is warm, readings end waits too, and so does what is near.
        while !sources.wait(tunables, Heat::Warm, Some(5 * MS)).timed_out {
            sources.take_room();
        }
        let other = wake_once_asleep(waker);
        while !sources.wait(tunables, Heat::Warm, Some(PATIENCE_NS)).woken {
            sources.take_room();
        }
        other.join().unwrap();
        sources.off = false;
        sources.last_reading = 0;
        tunables.limit.set(1 << 20);
        let near = sources.wait(tunables, Heat::Warm, Some(PATIENCE_NS));
        assert_eq!((near.level, near.source), (Level::Severe, Some(Source::Limit)));
        assert!(sources.last_reading != 0 && sources.take_room().is_some_and(|room| room.capacity == 1 << 20));
    });
}

/// Where the process is in a group of the unified hierarchy, its directory is opened, too.
#[test]
fn without_a_table_of_its_own_nothing_stays_open() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        sources.private = false;
        let open = || (0..200).filter(|fd| fd::fstat(*fd).is_ok()).count();
        let before = open();
        for _ in 0..3 {
            sources.measure(tunables);
            sources.read(monotonic_ns(), tunables, &mut Events::default());
            sources.is_limited();
        }
        let mut groups = Groups::new();
        groups.main_thread_has_ended();
        assert_eq!((open(), groups.membership), (before, -1));
    });
}

#[test]
fn the_users_limit_is_read_warm_and_cold() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        hear_nothing(sources);
        assert!(sources.wait(tunables, Heat::Cold, Some(MS)).timed_out);
        assert_eq!(sources.last_reading, 0, "a cold heap without a limit is not looked after");
        tunables.limit.set(1 << 20);
        for heat in [Heat::Warm, Heat::Resting, Heat::Cold] {
            let near = sources.wait(tunables, heat, None);
            assert_eq!((near.level, near.source), (Level::Severe, Some(Source::Limit)));
        }
    });
}

#[test]
fn a_limit_that_is_set_or_taken_back_is_read_at_once() {
    with_sources(&Request::Unset, |sources, tunables, waker| {
        hear_nothing(sources);
        for heat in [Heat::Cold, Heat::Resting, Heat::Caching, Heat::Warm] {
            for limit in [1 << 20, 1 << 21, 0] {
                // The next reading is not due.
                (sources.last_reading, sources.room) = (monotonic_ns() + PATIENCE_NS, None);
                tunables.limit.set(limit);
                waker.wake();
                assert!(sources.wait(tunables, heat, Some(PATIENCE_NS)).woken);
                let own = sources.take_room().expect("a reading");
                assert_eq!((own.is_own, own.is_own && own.capacity == limit), (limit != 0, limit != 0), "{heat:?}");
            }
        }
    });
}

#[test]
fn a_target_is_looked_at_at_once_and_until_it_is_met() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        hear_nothing(sources);
        sources.last_reading = monotonic_ns();
        assert!(sources.set_target(Some(1 << 20)) && !sources.set_target(Some(1 << 20)));
        assert_eq!(sources.next_reading(tunables, Heat::Empty, 0), Some(0));
        for level in [Level::Some, Level::Severe, Level::Severe] {
            let near = sources.wait(tunables, Heat::Empty, None);
            assert_eq!((near.level, near.source), (level, Some(Source::Limit)));
            assert!(sources.take_room().is_some_and(|room| room.used > room.capacity), "the balancer has a limit");
            let next = sources.next_reading(tunables, Heat::Empty, 0);
            assert_eq!(next, Some(sources.last_reading + READ_INTERVAL_NS));
        }
        assert!(sources.set_target(None));
        sources.wait(tunables, Heat::Empty, Some(PATIENCE_NS));
        assert!(sources.take_room().is_none_or(|room| !room.is_own), "the balancer has it no more");
        assert!(sources.wait(tunables, Heat::Empty, Some(MS)).timed_out);
        assert_eq!(sources.next_reading(tunables, Heat::Empty, u64::MAX), None);
    });
}

#[test]
fn a_resting_heap_reads_what_does_not_notify() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        sources.wait(tunables, Heat::Resting, Some(MS));
        assert_ne!(sources.last_reading, 0, "no trigger is armed yet");
        // All that there is notifies.
        sources.slots[Notifier::SystemStall as usize].fd = i32::MAX;
        sources.slots[Notifier::OwnEvents as usize].fd = i32::MAX;
        assert_eq!(sources.next_reading(tunables, Heat::Resting, u64::MAX), None);
        assert!(sources.next_reading(tunables, Heat::Warm, u64::MAX).is_some());
    });
}

#[test]
fn another_window_of_stalls_arms_all_anew() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        hear_nothing(sources);
        let window = |sources: &Sources| sources.thresholds.map(|(some, full)| [some.window_us, full.window_us]);
        assert_eq!(window(sources), Some([1_000_000; 2]));
        let event = fd::eventfd().unwrap();
        sources.set(Notifier::SystemStall, event, POLLPRI);
        tunables.psi_window_us.set(2_000_000);
        assert!(sources.wait(tunables, Heat::Empty, Some(MS)).timed_out);
        assert_eq!(window(sources), Some([2_000_000; 2]));
        assert_ne!(sources.slots[Notifier::SystemStall as usize].fd, event, "it has the former window");
    });
}

#[test]
fn an_empty_heap_hears_nothing_and_later_nothing_old() {
    with_sources(&Request::Unset, |sources, tunables, waker| {
        hear_nothing(sources);
        let event = fd::eventfd().unwrap();
        sources.set(Notifier::LowLevel, event, POLLIN);
        // Neither is a trigger armed for it.
        sources.triggers_at = 0;
        fd::eventfd_signal(event).unwrap();
        assert_eq!(sources.wait(tunables, Heat::Empty, Some(5 * MS)), Events { timed_out: true, ..Events::default() });
        assert_eq!((sources.last_reading, sources.triggers_at), (0, 0));
        let other = wake_once_asleep(waker);
        assert!(sources.wait(tunables, Heat::Empty, Some(PATIENCE_NS)).woken, "what is not pressure is heard");
        other.join().unwrap();
        // With something to give again: what came in between is forgotten, what comes now is heard.
        sources.triggers_at = u64::MAX;
        assert!(sources.wait(tunables, Heat::Cold, Some(5 * MS)).timed_out);
        fd::eventfd_signal(event).unwrap();
        let heard = sources.wait(tunables, Heat::Cold, Some(PATIENCE_NS));
        assert_eq!((heard.level, heard.source), (Level::Some, Some(Source::GroupEvent)));
    });
}

#[test]
fn thresholds_may_change_while_waiting() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        sources.triggers_at = 0;
        sources.wait(tunables, Heat::Cold, Some(MS));
        assert_eq!(sources.triggers_at, u64::MAX);
        let open = || (0..200).filter(|fd| fd::fstat(*fd).is_ok()).count();
        let before = open();
        tunables.psi_some_us.set(80_000);
        sources.wait(tunables, Heat::Cold, Some(MS));
        assert_eq!(sources.thresholds.unwrap().0.stall_us, 80_000);
        assert_eq!(open(), before, "what was armed before is closed");
    });
}

#[test]
fn the_service_managers_socket_is_heard_and_its_end_does_not_spin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let text: &'static str = std::string::String::leak(path.to_str().unwrap().into());
    let request = std::boxed::Box::leak(std::boxed::Box::new(Request::Watch { path: text.as_bytes(), write: None }));
    // On a thread with the program's descriptors: the one with the sources has a table of its own.
    let (end, is_to_end) = std::sync::mpsc::channel::<()>();
    let manager = std::thread::spawn(move || {
        let (mut manager, _) = listener.accept().unwrap();
        manager.write_all(b"!").unwrap();
        let _ = is_to_end.recv();
        // Not by closing it alone: a table that another test's thread took over meanwhile has the socket too.
        manager.shutdown(std::net::Shutdown::Both).unwrap();
    });
    with_sources(request, move |sources, tunables, _| {
        ALL.into_iter().filter(|it| *it != Notifier::Watch).for_each(|notifier| sources.close(notifier));
        // A manager that failed says nothing more.
        let heard = sources.wait(tunables, Heat::Cold, Some(120_000 * MS));
        assert_eq!((heard.level, heard.source), (Level::Severe, Some(Source::ServiceManager)));
        // The other end goes: one event is taken, the source dropped, a new try put off. Each wait of this loop ends by
        // its timeout; a source that is never dropped would go on for ever.
        drop(end);
        while sources.slots[Notifier::Watch as usize].fd >= 0 {
            assert!(sources.wait(tunables, Heat::Cold, Some(MS)).timed_out);
        }
        assert_ne!(sources.reopen_at, u64::MAX);
    });
    manager.join().unwrap();
}

#[test]
fn event_counts_are_compared_and_a_removed_group_is_dropped() {
    with_sources(&Request::Off, |sources, _, _| {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let path_c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let mut hear = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut events = Events::default();
            if sources.slots[Notifier::OwnEvents as usize].fd < 0 {
                let file = fd::open(&path_c, fd::O_RDONLY).unwrap();
                assert_eq!(fd::fstat(file).map(|found| found.kind), Ok(FileKind::Regular));
                sources.set(Notifier::OwnEvents, file, POLLPRI);
            }
            sources.take(Notifier::OwnEvents, POLLPRI | POLLERR, 0, &mut events);
            events.level
        };
        assert_eq!(hear("low 0\nhigh 1\nmax 0\noom 0\n"), Level::Some);
        assert_eq!(hear("low 9\nhigh 1\nmax 0\noom 0\n"), Level::None);
        assert_eq!(hear("low 9\nhigh 1\nmax 5\noom 0\n"), Level::Some);
        assert_eq!(hear("low 9\nhigh 1\nmax 6\noom 0\noom_kill 1\n"), Level::Severe);
        assert_eq!(hear(""), Level::None);
        assert_eq!(sources.slots[Notifier::OwnEvents as usize].fd, -1);
    });
}

#[test]
fn a_trigger_is_followed_by_readings_although_the_heap_rests() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        hear_nothing(sources);
        let mut events = Events::default();
        let stalls = super::follow_tests::Pressure::file(0);
        stalls.put_in(sources, Notifier::SystemStall);
        stalls.say(1_000_000);
        sources.take(Notifier::SystemStall, POLLPRI, monotonic_ns(), &mut events);
        assert_eq!((events.level, events.source), (Level::Some, Some(Source::SystemStall)));
        sources.last_reading = 0;
        sources.wait(tunables, Heat::Cold, Some(MS));
        assert_eq!(sources.last_reading, 0, "a heap with nothing to release is not read for");
        sources.wait(tunables, Heat::Resting, Some(MS));
        assert_ne!(sources.last_reading, 0, "read");
        sources.alert_until = 0;
        sources.last_reading = 0;
        sources.wait(tunables, Heat::Cold, Some(MS));
        assert_eq!(sources.last_reading, 0, "not read");
        // A trigger whose group is gone is dropped.
        sources.take(Notifier::GroupStall, POLLERR, monotonic_ns(), &mut events);
        assert_ne!(sources.reopen_at, u64::MAX);
    });
}

#[test]
fn the_room_is_followed_as_limits_change() {
    let (mut sources, tunables) = (Sources::new(), Tunables::new());
    let machine = sources.measure(&tunables);
    assert!(machine.capacity >= 1 << 20 && machine.free() <= machine.capacity, "{machine:?}");
    // A limit of its own, a little above what the process holds, and one below: other tests of it come and go.
    weir_testing::wait_until("the room below a limit", || {
        let held = sources.readings.resident().unwrap();
        tunables.limit.set(held + (8 << 20));
        let above = sources.measure(&tunables);
        assert_eq!(above.capacity, held + (8 << 20));
        tunables.limit.set(1 << 20);
        let below = sources.measure(&tunables);
        assert_eq!(below.capacity, 1 << 20);
        above.free() <= 9 << 20 && below.used.abs_diff(held) < 1 << 20
    });
    tunables.limit.set(0);
    assert_eq!(sources.measure(&tunables).capacity, machine.capacity);
    // A reading leaves it to be taken, once.
    assert_eq!(sources.take_room(), None);
    sources.read(monotonic_ns(), &tunables, &mut Events::default());
    assert!(sources.take_room().is_some() && sources.take_room().is_none());
}

/// `MemoryPressureWatch=off`: nothing of pressure is heard, and limits hold.
#[test]
fn limits_hold_also_where_pressure_is_not_to_be_heard() {
    with_sources(&Request::Off, |sources, tunables, _| {
        assert!(sources.measure(tunables).capacity > 0, "the machine's memory is a limit");
        assert!(sources.groups.membership >= 0, "moves to other groups are seen");
        sources.triggers_at = 0;
        sources.wait(tunables, Heat::Resting, Some(MS));
        let heard = ALL.into_iter().filter(|notifier| notifier.is_of_pressure());
        assert!(heard.into_iter().all(|notifier| sources.slots[notifier as usize].fd < 0));
        let mut groups = Groups::new();
        core::mem::swap(&mut sources.groups, &mut groups);
        let full: &[(&str, &str)] = &[("memory.max", "1000\n"), ("memory.high", "max\n"), ("memory.current", "990\n")];
        let (_top, group) = crate::pressure::group::memcg::tests::tree(Version::V2, &[full]);
        sources.groups.memory = Some(group);
        let mut events = Events::default();
        sources.read(monotonic_ns(), tunables, &mut events);
        assert_eq!((events.level, events.source), (Level::Severe, Some(Source::GroupHeadroom)));
        assert!(sources.take_room().is_some_and(|room| room.capacity == 1000) && sources.is_limited());
    });
}

#[test]
fn a_stall_is_doubted_only_where_its_limit_is_in_sight() {
    with_sources(&Request::Unset, |sources, tunables, _| {
        hear_nothing(sources);
        let doubts = |sources: &mut Sources, heard: &[Source]| {
            let mut events = Events::default();
            heard.iter().for_each(|&source| events.raise(Level::Some, source));
            sources.read(monotonic_ns(), tunables, &mut events);
            assert!(events.is_sign());
            events.is_doubtful()
        };
        let group = sources.groups.memory.take();
        assert!(
            !doubts(sources, &[Source::SystemStall]) && !doubts(sources, &[Source::GroupStall]),
            "no group is to be seen"
        );
        let has_limit = group.as_ref().is_some_and(|group| room::of_group(group).next().is_some());
        let is_seen = group.is_some();
        sources.groups.memory = group;
        assert_eq!(doubts(sources, &[Source::SystemStall]), is_seen);
        let both = [Source::SystemStall, Source::GroupStall];
        assert_eq!([&both[1..], &both[..]].map(|heard| doubts(sources, heard)), [has_limit; 2]);
    });
}
