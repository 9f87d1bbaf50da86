//! Memory pressure: hearing when memory is short, how short, and when it is not any more.
//!
//! The level is that of whatever is shortest: the machine, a control group of the process, or the limit that was set
//! ([`settings`](crate::settings), `limit`). Weir hears of it by the kernel's notifications and releases what is idle. A
//! program may do more: drop caches, refuse new work, or run with fewer workers until *relief*. Relief comes once, after
//! `relief_ms` without another event.
//!
//! ```
//! use weir::pressure::{self, Level};
//!
//! let subscription = pressure::subscribe(Level::Some, |event| match event.level {
//!     Level::None => println!("memory is plentiful again"),
//!     level => println!("memory is short: {level:?}, because of {:?}", event.cause),
//! })
//! .unwrap();
//! assert_eq!(pressure::latest().level, Level::None);
//! drop(subscription); // unsubscribes
//! ```

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use core::time::Duration;
use weir_linux::os::clock::monotonic_ns;
use weir_linux::os::file::socket::End;
use weir_linux::os::syscall::Errno;
use weir_linux::pressure::sources;
use weir_linux::process::callbacks::{self, Callback, CallbackSpec, Class, FdError, Guard, Panicked};
use weir_linux::process::{limit, pressure};

use crate::shrinker::{CallbackThread, OwnedRegistration, RegisterError, nanoseconds};

pub use weir_linux::process::pressure::{Cause, Event, Level};

/// The latest event: the level now. It costs one load. Somebody must listen, or nothing is heard: a subscription, a
/// shrinker, or [`events`].
pub fn latest() -> Event {
    pressure::latest()
}

/// Calls `callback` with each event of `level` or above, and with the relief that follows; on Weir's thread for callbacks
/// ([`CallbackThread::Shared`]). One that is slow hears of the latest event only: by [`Event::generation`] it sees that
/// there were others.
///
/// # Errors
/// There is no memory for the subscription, or no thread.
pub fn subscribe(
    level: Level,
    callback: impl Fn(Event) + Send + Sync + 'static,
) -> Result<Subscription, RegisterError> {
    subscribe_on(CallbackThread::Shared, "pressure", level, callback)
}

/// [`subscribe`], on a thread of the caller's choice, and with a name for messages.
///
/// # Errors
/// Those of [`subscribe`].
pub fn subscribe_on(
    thread: CallbackThread<'_>,
    name: &str,
    level: Level,
    callback: impl Fn(Event) + Send + Sync + 'static,
) -> Result<Subscription, RegisterError> {
    struct Subscriber<F>(F, Guard);
    impl<F: Fn(Event) + Sync> Callback for Subscriber<F> {
        fn event(&self, event: Event) -> Result<(), Panicked> {
            self.1.call(|| (self.0)(event))
        }
    }
    let thread = thread.inner();
    let spec = CallbackSpec { name: name.as_bytes(), class: Class::Subscriber, level, ..CallbackSpec::default() };
    let registration = callbacks::register(&spec, Subscriber(callback, Guard::new(thread)), thread)?;
    Ok(Subscription { registration: OwnedRegistration::new(registration) })
}

/// A subscription; dropping it ends it. A drop waits while another thread is in the callback; inside the callback itself
/// it returns at once.
#[derive(Debug)]
pub struct Subscription {
    #[expect(dead_code, reason = "held until the subscription is dropped, and shown by `Debug`")]
    registration: OwnedRegistration,
}

/// The events from now on, as an iterator that waits for the next one, and never ends.
///
/// A reader that is slow misses events, and sees the latest: [`Event::generation`] counts all of them. A forked child may go on
/// with it, but for [`PressureEvents::raw_fd`].
///
/// ```
/// use std::time::Duration;
/// use weir::pressure;
///
/// let mut events = pressure::events();
/// assert!(events.try_next().is_none(), "nothing has happened yet");
/// assert!(events.next_timeout(Duration::from_millis(1)).is_none());
/// // On a thread of its own: for event in events { ... }
/// ```
pub fn events() -> PressureEvents {
    let reader = pressure::Reader::new();
    PressureEvents { seen: pressure::latest().generation, reader, end: None }
}

/// See [`events`].
pub struct PressureEvents {
    /// Generation of the event that was seen last.
    seen: u32,
    reader: pressure::Reader,
    end: Option<(End, Subscription)>,
}

impl PressureEvents {
    /// The latest event, if it has not been seen yet.
    pub fn try_next(&mut self) -> Option<Event> {
        if let Some((end, _)) = &self.end {
            // Before the look: an event after it makes the descriptor readable again.
            end.take();
        }
        let event = pressure::latest();
        let is_new = event.generation != self.seen;
        self.seen = event.generation;
        is_new.then_some(event)
    }

    /// Waits for an event that has not been seen yet, for `timeout` at most.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let until = monotonic_ns().saturating_add(nanoseconds(timeout));
        loop {
            let left = until.saturating_sub(monotonic_ns());
            match self.try_next() {
                None if left > 0 => self.reader.wait(self.seen, Some(left)),
                event => return event,
            }
        }
    }

    /// A file descriptor that is readable when there is an event that [`PressureEvents::try_next`] has not given yet: for
    /// an event loop or an async runtime. It is closed with this iterator. In a forked child it is the parent's, and tells of
    /// nothing: a child makes new [`events`].
    ///
    /// With tokio, for example:
    ///
    /// ```text
    /// struct Fd(i32);
    /// impl AsRawFd for Fd { fn as_raw_fd(&self) -> i32 { self.0 } }
    ///
    /// let mut events = weir::pressure::events();
    /// let fd = AsyncFd::with_interest(Fd(events.raw_fd()?), Interest::READABLE)?;
    /// loop {
    ///     let mut ready = fd.readable().await?;
    ///     while let Some(event) = events.try_next() { ... }
    ///     ready.clear_ready();
    /// }
    /// ```
    ///
    /// # Errors
    /// The system refuses a descriptor or a thread, or there is no memory.
    pub fn raw_fd(&mut self) -> Result<i32, RegisterError> {
        if let Some((end, _)) = &self.end {
            return Ok(end.fd());
        }
        let (end, registration) = pressure::open_fd(Level::Some).map_err(|why| match why {
            FdError::Os(Errno::ENOMEM) => RegisterError::OutOfMemory,
            FdError::Os(_) => RegisterError::NoDescriptor,
            FdError::Register(why) => why.into(),
        })?;
        // It was registered just now: it has not heard of what came before.
        registration.catch_up(self.seen);
        let fd = end.fd();
        self.end = Some((end, Subscription { registration: OwnedRegistration::new(registration) }));
        Ok(fd)
    }
}

impl Iterator for PressureEvents {
    type Item = Event;

    /// Waits for an event that has not been seen yet: there always is one.
    fn next(&mut self) -> Option<Event> {
        loop {
            match self.try_next() {
                None => self.reader.wait(self.seen, None),
                event => return event,
            }
        }
    }
}

impl Drop for PressureEvents {
    fn drop(&mut self) {
        if let Some((end, subscription)) = self.end.take() {
            drop(subscription);
            end.close();
        }
    }
}

impl fmt::Debug for PressureEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PressureEvents").field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// The lowest limit of memory of the process's control group and of those above it, bytes, read now: `memory.max`, and
/// `memory.high`. None: nothing limits them. A program can size by it what it takes at most.
///
/// ```
/// let most = weir::pressure::group_limit().map_or(64 << 20, |limit| (limit / 4).min(64 << 20));
/// assert!(most <= 64 << 20);
/// ```
pub fn group_limit() -> Option<u64> {
    sources::group_limit()
}

/// The program's function for [`on_limit`]; 0: none.
static ON_LIMIT: AtomicUsize = AtomicUsize::new(0);

fn limit_function(address: usize) -> Option<fn(usize) -> bool> {
    // SAFETY: the word is 0, which is `None`, or was stored by `on_limit` from a function of this type.
    unsafe { core::mem::transmute(address) }
}

/// Sets what is called before an allocation fails because of the setting `hard_limit`, with the bytes it is about; returns
/// what was set before. If it returns `true`, it has freed something, and the allocation is tried again.
///
/// The function is called on the thread that allocates, which may hold locks of the program's: it must not wait for any. It may
/// allocate: an allocation that does not fit then fails without another call. If the function panics, the process ends.
///
/// One thread at a time is in it. An allocation of another thread that is about to fail meanwhile waits until it returns, and is
/// tried again; then it calls the function itself. If that takes longer than the setting `callback_ms`, it fails.
///
/// ```
/// use std::sync::Mutex;
/// use weir::pressure;
///
/// static SPARE: Mutex<Vec<u8>> = Mutex::new(Vec::new());
///
/// pressure::on_limit(Some(|_bytes| {
///     SPARE.try_lock().is_ok_and(|mut spare| std::mem::take(&mut *spare).capacity() > 0)
/// }));
/// pressure::on_limit(None);
/// ```
pub fn on_limit(callback: Option<fn(usize) -> bool>) -> Option<fn(usize) -> bool> {
    extern "C" fn call(bytes: usize) -> i32 {
        limit_function(ON_LIMIT.load(Acquire)).is_some_and(|callback| callback(bytes)).into()
    }
    let before = ON_LIMIT.swap(callback.map_or(0, |callback| callback as usize), AcqRel);
    if callback.is_some() {
        // It stays from then on. Taken off again, it might be missing for a function that another thread sets meanwhile.
        limit::on_limit(Some(call));
    }
    limit_function(before)
}

/// For a forked child that goes on with the shrinkers and subscriptions of its parent. Makes the threads that call them, which
/// `fork` does not copy. Registering something does the same, and so does the first insertion into an evictable cache.
pub fn resume_after_fork() {
    callbacks::resume();
}
