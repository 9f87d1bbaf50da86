//! The background thread's futex, its listener and the turns that they take (`pressure/wake.rs`), its own source. They
//! run on a model checker's atomics and a kernel of three calls. No event and no wake-up is lost, and the array has one
//! user at a time. Events that were heard of a descriptor are not told of the next one of that number.
#![cfg(loom)]

use std::sync::atomic::{AtomicU32 as Plain, Ordering::Relaxed};

/// Parts that `wake.rs` is made of, here.
mod sync {
    pub use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize};
    pub(crate) use weir_models::sync::constructor;

    /// The checker reports two users at once.
    #[derive(Debug)]
    pub struct Cell<T>(loom::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(f)
        }
    }
}

mod os {
    pub(crate) use super::{clock, fd, futex, process, sync, syscall};
}

mod syscall {
    #[allow(clippy::upper_case_acronyms, dead_code, reason = "the kernel's names")]
    #[derive(Debug, PartialEq)]
    pub enum Errno {
        EAGAIN,
        EINTR,
        ENOMEM,
        ESRCH,
        ETIMEDOUT,
    }
    pub type Result<T> = std::result::Result<T, Errno>;
}

/// Descriptors that are readable or not, whoever takes that.
mod fd {
    use super::syscall::Result;
    use super::{FLAW, KERNEL, LOST_KICK, Relaxed};

    pub const POLLIN: i16 = 1;
    /// The listener's eventfd; the others are the test's.
    pub const KICK: i32 = 0;

    #[derive(Clone, Copy, Debug)]
    pub struct PollFd {
        pub fd: i32,
        pub events: i16,
        pub revents: i16,
    }

    pub fn eventfd() -> Result<i32> {
        Ok(KICK)
    }

    pub fn close(_: i32) -> Result<()> {
        Ok(())
    }

    pub fn eventfd_signal(fd: i32) -> Result<()> {
        if fd != KICK || FLAW.load(Relaxed) != LOST_KICK {
            KERNEL.readable.lock().unwrap()[fd as usize] = true;
            KERNEL.pollers.notify_all();
        }
        Ok(())
    }

    pub fn eventfd_take(fd: i32) -> Result<u64> {
        Ok(u64::from(std::mem::take(&mut KERNEL.readable.lock().unwrap()[fd as usize])))
    }

    /// As the kernel does, it writes to the array after it looked.
    pub fn ppoll(array: &mut [PollFd], timeout_ns: Option<u64>) -> Result<usize> {
        assert!(timeout_ns.is_none());
        let mut readable = KERNEL.readable.lock().unwrap();
        loop {
            let wanted = |entry: &&mut PollFd| entry.fd >= 0 && entry.events != 0 && readable[entry.fd as usize];
            let count = array.iter_mut().filter(wanted).map(|entry| entry.revents = POLLIN).count();
            if count > 0 {
                return Ok(count);
            }
            readable = KERNEL.pollers.wait(readable).unwrap();
        }
    }
}

/// Futexes: a word is looked at and the thread put to sleep in one step.
mod futex {
    use super::sync::AtomicU32;
    use super::syscall::Result;
    use super::{DEAF, FLAW, KERNEL, Relaxed, SEIZED};
    use loom::sync::atomic::Ordering::SeqCst;

    /// The sleepers of a word, of which there are two.
    fn queue(word: &AtomicU32) -> usize {
        let mut words = KERNEL.words.lock().unwrap();
        let at = std::ptr::from_ref(word) as usize;
        words.iter().position(|&known| known == at).unwrap_or_else(|| {
            words.push(at);
            words.len() - 1
        })
    }

    pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> Result<()> {
        if timeout_ns.is_some() && FLAW.load(Relaxed) == SEIZED {
            // A thread that asks for the turn takes it.
            word.store(0, SeqCst);
            return Ok(());
        }
        let (lock, sleepers) = &KERNEL.futexes[queue(word)];
        let guard = lock.lock().unwrap();
        if word.load(SeqCst) == expected {
            drop(sleepers.wait(guard).unwrap());
        }
        Ok(())
    }

    pub fn futex_wake(word: &AtomicU32, _count: u32) -> Result<usize> {
        if FLAW.load(Relaxed) != DEAF {
            let (lock, sleepers) = &KERNEL.futexes[queue(word)];
            let _guard = lock.lock().unwrap();
            sleepers.notify_one();
        }
        Ok(0)
    }

    pub fn futex_wait_two(_: &AtomicU32, _: u32, _: (usize, u32), _: Option<u64>) -> Result<()> {
        unreachable!("no main thread is watched")
    }

    pub fn main_threads_word() -> Option<usize> {
        None
    }
}

mod process {
    pub fn getpid() -> u32 {
        1
    }

    /// Only the sleeper is asked for.
    pub fn gettid() -> u32 {
        1
    }
}

mod clock {
    use super::IS_LATE;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// No time passes: the listener always is in time. Or an hour at each look: it never is.
    pub fn monotonic_ns() -> u64 {
        static TIME: AtomicU64 = AtomicU64::new(0);
        if IS_LATE.get() { TIME.fetch_add(3_600_000_000_000, Relaxed) } else { 0 }
    }
}

#[allow(dead_code, missing_docs, reason = "a part of it is used here")]
#[path = "../../../weir-linux/src/pressure/wake.rs"]
mod wake;

use fd::{POLLIN, PollFd, eventfd_signal, eventfd_take};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use syscall::Errno;
use wake::{Listener, Waker};

/// The flaws, of which a process has one.
static FLAW: Plain = Plain::new(0);
/// A futex wakes nobody.
const DEAF: u32 = 1;
/// The listener is not asked for its turn.
const LOST_KICK: u32 = 2;
/// The sleeper takes the turn while the listener is in `ppoll`.
const SEIZED: u32 = 3;
/// The sleeper does not forget what was heard of a descriptor.
const REMEMBERED: u32 = 4;

thread_local! {
    /// The sleeper does not wait for the listener's turn.
    static IS_LATE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

struct Kernel {
    readable: Mutex<[bool; 3]>,
    pollers: Condvar,
    futexes: [(Mutex<()>, Condvar); 2],
    words: std::sync::Mutex<Vec<usize>>,
}

loom::lazy_static! {
    static ref KERNEL: Kernel = Kernel {
        readable: Mutex::new([false; 3]),
        pollers: Condvar::new(),
        futexes: [(Mutex::new(()), Condvar::new()), (Mutex::new(()), Condvar::new())],
        words: std::sync::Mutex::new(Vec::new()),
    };
}

const A: i32 = 1;
const B: i32 = 2;

struct Pair {
    listener: Listener,
    waker: Waker,
}

impl Pair {
    /// One wait of the sleeper's for `fds`; which of them have events, and whether it was woken.
    fn wait<const N: usize>(&self, fds: [i32; N]) -> ([bool; N], bool) {
        let mut fds = fds.map(|fd| PollFd { fd, events: POLLIN, revents: 0 });
        match self.listener.wait(&self.waker, &mut fds, None) {
            Err(Errno::ETIMEDOUT) if IS_LATE.get() => self.waker.wait(None),
            other => other.unwrap(),
        }
        (fds.map(|fd| fd.revents != 0), self.waker.take())
    }
}

/// `sleeper` beside a listener and a third thread, which does `outside`.
fn model(sleeper: impl Fn(&Pair) + Sync + Send + 'static, outside: impl Fn(&Pair) + Copy + Sync + Send + 'static) {
    let is_late = IS_LATE.get();
    weir_models::check(3, move || {
        IS_LATE.set(is_late);
        let pair = Arc::new(Pair { listener: Listener::new(), waker: Waker::new() });
        // SAFETY: it is new, and no other thread runs yet.
        unsafe { pair.listener.open().unwrap() };
        let (listening, other) = (pair.clone(), pair.clone());
        let listening = thread::spawn(move || listening.listener.listen(&listening.waker));
        let other = thread::spawn(move || outside(&other));
        sleeper(&pair);
        other.join().unwrap();
        // One that is late at the end stays.
        IS_LATE.set(false);
        pair.listener.end();
        listening.join().unwrap();
    });
}

/// An event and a wake-up at the same time.
fn an_event_and_a_wake_up() {
    let sleeper = |pair: &Pair| {
        let (mut heard, mut woken) = (false, false);
        while !heard || !woken {
            let ([event], wake) = pair.wait([A]);
            woken |= wake;
            // What is left readable is heard of without end.
            heard |= event && eventfd_take(A).unwrap() != 0;
        }
    };
    model(sleeper, |pair| {
        eventfd_signal(A).unwrap();
        pair.waker.wake();
    });
}

/// Woken, the sleeper wants another descriptor at the place for which the listener is in `ppoll`.
fn another_wish() {
    let sleeper = |pair: &Pair| {
        while !pair.wait([A]).1 {}
        while !pair.wait([B]).0[0] {}
    };
    model(sleeper, |pair| {
        pair.waker.wake();
        eventfd_signal(B).unwrap();
    });
}

/// A descriptor that the listener waits for is closed, with what it had to say, and the next one has its number.
fn a_number_again() {
    let sleeper = |pair: &Pair| {
        pair.waker.wake();
        assert!(pair.wait([A]).1);
        eventfd_signal(A).unwrap();
        if FLAW.load(Relaxed) != REMEMBERED {
            pair.listener.forget(0);
        }
        eventfd_take(A).unwrap();
        pair.waker.wake();
        assert!(!pair.wait([A]).0[0], "an old event is told of a new descriptor");
    };
    model(sleeper, |_| {});
}

#[test]
fn no_event_and_no_wake_up_is_lost() {
    an_event_and_a_wake_up();
}

#[test]
fn the_array_is_the_sleepers_before_it_changes() {
    another_wish();
}

#[test]
fn a_late_listener_is_heard_again() {
    IS_LATE.set(true);
    another_wish();
}

#[test]
fn what_was_heard_is_forgotten() {
    a_number_again();
}

#[test]
fn flaws_are_noticed() {
    weir_models::must_fail("deadlock", || {
        FLAW.store(DEAF, Relaxed);
        an_event_and_a_wake_up();
    });
    weir_models::must_fail("deadlock", || {
        FLAW.store(LOST_KICK, Relaxed);
        another_wish();
    });
    weir_models::must_fail("currently writing to cell", || {
        FLAW.store(SEIZED, Relaxed);
        another_wish();
    });
    weir_models::must_fail("an old event is told", || {
        FLAW.store(REMEMBERED, Relaxed);
        a_number_again();
    });
}
