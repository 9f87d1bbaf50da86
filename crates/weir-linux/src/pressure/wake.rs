//! Waking a thread that waits for descriptors, without a descriptor and without a signal of the program's.
//!
//! The usual way is an eventfd. But a program may close all descriptors that it did not open itself and open others
//! under the same numbers. A waker that then writes its 8 bytes writes them into the program's file. A signal is the
//! program's too: a signalfd hands out what was sent to the whole process, and one that the program ignores is
//! discarded. So the background thread sleeps on a futex, and beside it a second thread, the *listener*, sleeps in
//! `ppoll`. The two share a descriptor table that is not the program's ([`crate::os::file::descriptor_table`]). All
//! that the listener does is to wake the sleeper when a descriptor is ready.

use crate::os::clock::monotonic_ns;
use crate::os::fd::{self, POLLIN, PollFd};
use crate::os::futex::{futex_wait, futex_wait_two, futex_wake, main_threads_word};
use crate::os::process::{getpid, gettid};
use crate::os::sync::{AtomicI32, AtomicU32, AtomicUsize, Cell, constructor};
use crate::os::syscall::{Errno, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// A wake-up.
const WOKEN: u32 = 1;
/// The listener has seen events.
const HEARD: u32 = 2;

/// Wakes one thread. Usable from any thread and from signal handlers.
#[derive(Debug, Default)]
pub struct Waker {
    /// News that the sleeper has not seen yet; it sleeps while this is 0.
    news: AtomicU32,
    /// Where the kernel clears the main thread's number; 0: its end is not to be heard.
    main_thread: AtomicUsize,
}

impl Waker {
    constructor! {
        /// A waker without a sleeper.
        pub fn new() -> Self {
            Self { news: AtomicU32::new(0), main_thread: AtomicUsize::new(0) }
        }
    }

    /// Wakes the sleeper, now or as soon as it sleeps.
    pub fn wake(&self) {
        self.tell(WOKEN);
    }

    fn tell(&self, what: u32) {
        // If there was news already, whoever stored it is waking the sleeper.
        if self.news.fetch_or(what, SeqCst) == 0 {
            let _ = futex_wake(&self.news, 1);
        }
    }

    /// Takes the wake-up that came, if one did. What its sender wrote before is visible after.
    pub fn take(&self) -> bool {
        self.news.swap(0, SeqCst) & WOKEN != 0
    }

    /// Sleeps until there is something to take, or the timeout; a signal may end it too.
    pub fn wait(&self, timeout_ns: Option<u64>) {
        let main_thread = self.main_thread.load(Relaxed);
        if main_thread != 0 {
            match futex_wait_two(&self.news, 0, (main_thread, getpid()), timeout_ns) {
                Ok(()) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ETIMEDOUT) => return,
                // Refused: a filter may give any other number.
                Err(_) => {}
            }
        }
        let _ = futex_wait(&self.news, 0, timeout_ns);
    }

    /// Makes the end of the main thread end a sleep, once. By the sleeper. `false`: the kernel does not report it.
    pub fn watch_main_thread(&self) -> bool {
        let word = main_threads_word();
        self.main_thread.store(word.unwrap_or(0), Relaxed);
        word.is_some()
    }

    /// Whether the main thread, which is watched, has ended. By the sleeper.
    pub(super) fn main_thread_ended(&self) -> bool {
        let word = self.main_thread.load(Relaxed);
        // SAFETY: `main_threads_word` found a thread's number there. It is the main thread's own memory, which libc
        // keeps for as long as the process.
        let ended = word != 0 && unsafe { (*(word as *const AtomicU32)).load(Acquire) } == 0;
        if ended {
            self.main_thread.store(0, Relaxed);
        }
        ended
    }

    /// For the next sleeper, which is not there yet.
    pub fn forget(&self) {
        self.main_thread.store(0, Relaxed);
        self.news.store(0, SeqCst);
    }
}

/// Most descriptors that a listener waits for.
pub(super) const MOST: usize = 12;
const NONE: PollFd = PollFd { fd: -1, events: 0, revents: 0 };

/// The array is the sleeper's; the listener waits for its turn.
const SLEEPERS: u32 = 0;
/// The listener waits for the array's descriptors.
const LISTENERS: u32 = 1;
/// There is no listener, or it is to end.
const OVER: u32 = 2;

/// How long the listener may take to end its turn after a kick. If it takes longer it gets no CPU, a tracer holds it, or it
/// is not there (a sandbox ended it).
const TURN_NS: u64 = 1_000_000_000;

/// The array that the sleeper and its listener share. They take turns at the array. The thread that has the turn hands it over
/// by storing the other's (release), after which it touches nothing. The other begins after it read that (acquire).
/// Only the listener ends its own turn. So a sleeper that needs the array while the listener is in `ppoll` makes an
/// eventfd readable that the listener waits for too. Then the sleeper waits for the turn.
///
/// The interleaving that this excludes: the sleeper takes the turn itself. `ppoll`, which writes its results to the
/// array as it returns, writes into entries that the sleeper has changed.
///
/// A listener that does not end its turn in time is *late*. The sleeper goes on without it, and waits for it no more. The kick
/// stays readable, so the listener ends its turn as soon as it runs, and wakes the sleeper. From then on it is in time again.
/// What it heard of a place that was forgotten meanwhile is dropped, as the array could not be changed then.
#[derive(Debug)]
pub struct Listener {
    turn: AtomicU32,
    /// The eventfd, in the table of the two.
    kick: AtomicI32,
    array: Cell<[PollFd; MOST + 1]>,
    /// The array as it was handed over last. The sleeper's alone, which compares with it while the listener has the
    /// turn.
    handed: Cell<[PollFd; MOST + 1]>,
    /// `ppoll` was refused.
    failed: AtomicU32,
    /// 1: the listener is late. The sleeper's alone.
    is_late: AtomicU32,
    /// Places forgotten while it was, a bit each. The sleeper's alone.
    forgotten: AtomicU32,
    /// The sleeper's thread number.
    opened_by: AtomicU32,
}

// SAFETY: the array is touched by whoever has the turn, its copy by the sleeper.
unsafe impl Sync for Listener {}

impl Default for Listener {
    fn default() -> Self {
        Self::new()
    }
}

impl Listener {
    constructor! {
        /// No listener yet.
        pub fn new() -> Self {
            Self {
                turn: AtomicU32::new(OVER),
                kick: AtomicI32::new(-1),
                array: Cell::new([NONE; MOST + 1]),
                handed: Cell::new([NONE; MOST + 1]),
                failed: AtomicU32::new(0),
                is_late: AtomicU32::new(0),
                forgotten: AtomicU32::new(0),
                opened_by: AtomicU32::new(0),
            }
        }
    }

    /// Prepares for a listener that shares the calling thread's descriptor table.
    ///
    /// # Safety
    /// There is none, and no other thread opens it meanwhile.
    pub unsafe fn open(&self) -> Result<()> {
        let kick = fd::eventfd()?;
        self.kick.store(kick, Relaxed);
        // SAFETY: there is no listener, as the caller promises.
        self.array.with_mut(|array| unsafe { *array = [NONE; MOST + 1] });
        [&self.failed, &self.is_late, &self.forgotten].into_iter().for_each(|word| word.store(0, Relaxed));
        self.opened_by.store(gettid(), Relaxed);
        self.turn.store(SLEEPERS, Release);
        Ok(())
    }

    /// The listener's work, until [`Listener::end`].
    pub fn listen(&self, waker: &Waker) {
        loop {
            match self.turn.load(Acquire) {
                OVER => return,
                SLEEPERS => {
                    let _ = futex_wait(&self.turn, SLEEPERS, None);
                    continue;
                }
                _ => {}
            }
            // SAFETY: it is the listener's turn.
            if !self.array.with_mut(|array| self.hear(unsafe { &mut *array })) {
                continue;
            }
            self.turn.store(SLEEPERS, Release);
            let _ = futex_wake(&self.turn, 1);
            waker.tell(HEARD);
        }
    }

    /// Waits for the array's descriptors; whether the sleeper is to be woken.
    fn hear(&self, array: &mut [PollFd; MOST + 1]) -> bool {
        match fd::ppoll(array, None) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(_) => self.failed.store(1, Relaxed),
        }
        if core::mem::take(&mut array[MOST].revents) != 0 {
            let _ = fd::eventfd_take(array[MOST].fd);
        }
        true
    }

    /// Sleeps until one of `fds` has events, a wake-up, or the timeout, and fills in the events. Each of `fds` is the
    /// same descriptor at the same place as the last time, or another. By the sleeper. An error: there is no listener,
    /// the kernel refuses to wait for these, or the listener is late (`ETIMEDOUT`).
    pub(super) fn wait(&self, waker: &Waker, fds: &mut [PollFd], timeout_ns: Option<u64>) -> Result<()> {
        if self.turn.load(Acquire) == LISTENERS && !self.waits_for(fds) {
            self.take_turn()?;
        }
        if self.turn.load(Acquire) != LISTENERS {
            if self.collect(fds)? {
                return Ok(());
            }
            self.hand_over(fds);
        }
        waker.wait(timeout_ns);
        if self.turn.load(Acquire) != LISTENERS {
            self.collect(fds)?;
        }
        Ok(())
    }

    /// Before a descriptor is closed, or a new one takes its place: what was heard of it, and would be, is forgotten.
    pub(super) fn forget(&self, place: usize) {
        if self.turn.load(Acquire) != LISTENERS || self.take_turn().is_ok() {
            // SAFETY: it is the sleeper's turn.
            self.array.with_mut(|array| unsafe { (*array)[place] = NONE });
        } else {
            self.forgotten.store(self.forgotten.load(Relaxed) | 1 << place, Relaxed);
        }
    }

    /// Has the listener end; whether there is one that will. The descriptors may be closed once it has. By the sleeper
    /// that opened it: one that has ended without this leaves its listener, to which the next sleeper has no
    /// descriptor.
    pub fn end(&self) -> bool {
        if self.opened_by.load(Relaxed) != gettid() {
            return false;
        }
        // One that is late is waited for once more.
        self.is_late.store(0, Relaxed);
        if self.turn.load(Acquire) != LISTENERS || self.take_turn().is_ok() {
            self.turn.store(OVER, Release);
            let _ = futex_wake(&self.turn, 1);
        }
        true
    }

    /// There is no listener for what was opened. By the thread that opened it.
    pub fn give_up(&self) {
        self.reset();
        let _ = fd::close(self.kick.swap(-1, Relaxed));
    }

    /// In a forked child: there is no listener.
    pub fn reset(&self) {
        self.turn.store(OVER, Relaxed);
    }

    /// Whether the listener waits for just these.
    fn waits_for(&self, fds: &[PollFd]) -> bool {
        let same = |(handed, wanted): (&PollFd, &PollFd)| handed.fd == wanted.fd && handed.events == wanted.events;
        // SAFETY: the sleeper, which alone uses the copy, calls this.
        self.handed.with_mut(|handed| unsafe { &*handed }.iter().zip(fds).all(same))
    }

    fn take_turn(&self) -> Result<()> {
        if self.is_late.load(Relaxed) != 0 {
            return if self.turn.load(Acquire) == LISTENERS { Err(Errno::ETIMEDOUT) } else { Ok(()) };
        }
        let _ = fd::eventfd_signal(self.kick.load(Relaxed));
        let deadline = monotonic_ns() + TURN_NS;
        while self.turn.load(Acquire) == LISTENERS {
            let now = monotonic_ns();
            if now >= deadline {
                self.is_late.store(1, Relaxed);
                return Err(Errno::ETIMEDOUT);
            }
            let _ = futex_wait(&self.turn, LISTENERS, Some(deadline - now));
        }
        Ok(())
    }

    /// Takes what was heard of `fds`; whether anything was. The sleeper has the turn.
    fn collect(&self, fds: &mut [PollFd]) -> Result<bool> {
        if self.turn.load(Acquire) == OVER {
            return Err(Errno::ESRCH);
        }
        self.is_late.store(0, Relaxed);
        let forgotten = self.forgotten.load(Relaxed);
        self.forgotten.store(0, Relaxed);
        let take = |array: &mut [PollFd; MOST + 1]| {
            let mut any = false;
            for (place, (entry, wanted)) in array.iter_mut().zip(fds).enumerate() {
                if forgotten >> place & 1 != 0 {
                    *entry = NONE;
                }
                // One that is not wanted at the moment is not forgotten.
                if wanted.fd >= 0 && wanted.fd == entry.fd {
                    wanted.revents = core::mem::take(&mut entry.revents);
                    any |= wanted.revents != 0;
                }
            }
            any
        };
        // SAFETY: it is the sleeper's turn, which only the sleeper ends.
        let any = self.array.with_mut(|array| take(unsafe { &mut *array }));
        if self.failed.swap(0, Relaxed) != 0 { Err(Errno::ENOMEM) } else { Ok(any) }
    }

    fn hand_over(&self, fds: &[PollFd]) {
        let fill = |array: &mut [PollFd; MOST + 1]| {
            for (entry, wanted) in array.iter_mut().zip(fds) {
                (entry.fd, entry.events) = (wanted.fd, wanted.events);
            }
            array[MOST] = PollFd { fd: self.kick.load(Relaxed), events: POLLIN, revents: 0 };
            *array
        };
        // SAFETY: it is the sleeper's turn.
        let handed = self.array.with_mut(|array| fill(unsafe { &mut *array }));
        // SAFETY: the sleeper alone uses the copy.
        self.handed.with_mut(|copy| unsafe { *copy = handed });
        self.turn.store(LISTENERS, Release);
        let _ = futex_wake(&self.turn, 1);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "wake_tests.rs"]
mod tests;
