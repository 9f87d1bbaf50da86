//! Tests of [`super`].

use super::*;
use crate::os::fd::{eventfd, eventfd_signal, eventfd_take};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Only a wait whose wake-up was lost takes so long, however busy the machine is.
const LONG_NS: u64 = weir_testing::PATIENCE.as_nanos() as u64;

#[test]
fn each_wake_up_arrives_however_it_races() {
    const ROUNDS: usize = 2000;
    let (waker, asked) = (Arc::new(Waker::new()), Arc::new(AtomicUsize::new(0)));
    let (waker2, asked2) = (waker.clone(), asked.clone());
    let sleeper = std::thread::spawn(move || {
        let mut seen = 0;
        while seen < ROUNDS {
            let before = monotonic_ns();
            if !waker2.take() {
                waker2.wait(Some(LONG_NS));
                assert!(monotonic_ns() - before < LONG_NS, "a wake-up was lost after {seen}");
                waker2.take();
            }
            seen = asked2.load(SeqCst);
        }
    });
    for _ in 0..ROUNDS {
        asked.fetch_add(1, SeqCst);
        waker.wake();
        if asked.load(SeqCst) % 7 == 0 {
            std::thread::yield_now();
        }
    }
    sleeper.join().unwrap();
    waker.wake(); // no thread is there: no harm
    waker.forget();
    assert!(!waker.take());
}

/// Runs `test` beside a listener.
fn with_listener(test: impl FnOnce(&Listener, &Waker)) {
    let (listener, waker) = (Listener::new(), Waker::new());
    // SAFETY: there is no listener yet.
    unsafe { listener.open() }.unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| listener.listen(&waker));
        test(&listener, &waker);
        listener.end();
    });
}

#[test]
fn a_listener_hears_what_is_wanted_and_only_that() {
    with_listener(|listener, waker| {
        let (a, b) = (eventfd().unwrap(), eventfd().unwrap());
        let want = |fd| PollFd { fd, events: POLLIN, revents: 0 };
        let wait = |fds: &mut [PollFd]| {
            while fds.iter().all(|fd| fd.revents == 0) {
                listener.wait(waker, fds, Some(LONG_NS)).unwrap();
                waker.take();
            }
        };
        eventfd_signal(b).unwrap();
        let mut fds = [want(a), want(b)];
        wait(&mut fds);
        assert_eq!((fds[0].revents, fds[1].revents), (0, POLLIN));
        // Muted, a readable one does not end a wait.
        let mut fds = [want(a), want(-1)];
        listener.wait(waker, &mut fds, Some(1_000_000)).unwrap();
        assert!(fds.iter().all(|fd| fd.revents == 0));
        // Another choice while the listener waits for the first.
        let mut fds = [want(a), want(b)];
        wait(&mut fds);
        assert_eq!(fds[1].revents, POLLIN);
        eventfd_take(b).unwrap();
        // What was heard of a descriptor that is closed is not told of the next one of that number.
        eventfd_signal(a).unwrap();
        let mut fds = [want(a), want(-1)];
        listener.wait(waker, &mut fds, Some(1_000_000)).unwrap();
        listener.forget(0);
        eventfd_take(a).unwrap();
        let mut fds = [want(a), want(-1)];
        listener.wait(waker, &mut fds, Some(1_000_000)).unwrap();
        assert_eq!(fds[0].revents, 0);
        for fd in [a, b] {
            fd::close(fd).unwrap();
        }
    });
    // Without one there is nothing to wait for.
    assert!(Listener::new().wait(&Waker::new(), &mut [], None).is_err());
}

#[test]
fn a_wake_up_and_an_event_may_race() {
    with_listener(|listener, waker| {
        let fd = eventfd().unwrap();
        let (mut woken, mut heard) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..2000 {
                    if i % 2 == 0 {
                        waker.wake()
                    } else {
                        eventfd_signal(fd).unwrap()
                    }
                    std::thread::yield_now();
                }
                eventfd_signal(fd).unwrap();
                waker.wake();
            });
            let before = monotonic_ns();
            while heard < 1001 || woken == 0 {
                let mut fds = [PollFd { fd, events: POLLIN, revents: 0 }];
                listener.wait(waker, &mut fds, Some(LONG_NS)).unwrap();
                assert!(monotonic_ns() - before < 2 * LONG_NS, "heard {heard}, woken {woken}");
                woken += usize::from(waker.take());
                if fds[0].revents != 0 {
                    heard += eventfd_take(fd).unwrap();
                }
            }
        });
        fd::close(fd).unwrap();
    });
}

fn sleeps_of_this_thread() -> i64 {
    // SAFETY: zeros are such a structure, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// A sleeper that a sandbox ended leaves its listener in `ppoll`, whose eventfd is another file in the next sleeper's
/// table.
#[test]
fn a_listener_that_another_sleeper_opened_is_left_alone() {
    let (listener, waker) = (Listener::new(), Waker::new());
    // SAFETY: there is no listener yet.
    unsafe { listener.open() }.unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| listener.listen(&waker));
        let fd = eventfd().unwrap();
        let mut fds = [PollFd { fd, events: POLLIN, revents: 0 }];
        waker.wake();
        listener.wait(&waker, &mut fds, Some(LONG_NS)).unwrap();
        let (listener, kick) = (&listener, listener.kick.load(Relaxed));
        let other = move || {
            listener.kick.store(fd, Relaxed);
            // Counted, not timed: whether it sleeps. The machine may stop the whole process in the middle of a try.
            let ends_at_once = || {
                let before = sleeps_of_this_thread();
                (listener.end(), sleeps_of_this_thread() == before)
            };
            let tries: [_; 20] = core::array::from_fn(|_| ends_at_once());
            listener.kick.store(kick, Relaxed);
            (tries, eventfd_take(fd))
        };
        let (tries, written) = scope.spawn(other).join().unwrap();
        // Before what was found is looked at: a test that fails must not wait for it.
        assert!(listener.end());
        assert!(tries.iter().all(|(is_ended, _)| !is_ended));
        assert!(tries.iter().any(|(_, is_at_once)| *is_at_once), "nothing is waited for");
        assert_eq!(written, Ok(0), "nothing is written to a file of that number");
        fd::close(fd).unwrap();
    });
}
