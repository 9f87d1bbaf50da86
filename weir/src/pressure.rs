//! Memory pressure: hearing when memory is short, how short, and when it is not any more.
//!
//! The level is that of whatever is shortest: the machine, a control group of the process, or the limit that was set
//! ([`settings`](crate::settings), `limit`). Weir hears of it by the kernel's notifications and releases what is idle; a
//! program may do more: drop caches, refuse new work, or run with fewer workers until *relief*, which comes once, after
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
use core::mem::ManuallyDrop;
use weir_linux::os::catch::catch_closure;
use weir_linux::process::callbacks::{self, Callback, CallbackSpec, Class, Panicked};

use crate::shrinker::{CallbackThread, RegisterError};

pub use weir_linux::process::callbacks::{Cause, Event, Level};

/// The latest event: the level now. Costs one load.
pub fn latest() -> Event {
    callbacks::latest()
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
/// As [`subscribe`].
pub fn subscribe_on(
    thread: CallbackThread<'_>,
    name: &str,
    level: Level,
    callback: impl Fn(Event) + Send + Sync + 'static,
) -> Result<Subscription, RegisterError> {
    struct Subscriber<F>(F);
    impl<F: Fn(Event) + Sync> Callback for Subscriber<F> {
        fn event(&self, event: Event) -> Result<(), Panicked> {
            catch_closure(|| (self.0)(event)).map_err(|_| Panicked)
        }
    }
    let spec = CallbackSpec { name: name.as_bytes(), class: Class::Subscriber, level, ..CallbackSpec::default() };
    let registration = callbacks::register(&spec, Subscriber(callback), thread.inner())?;
    Ok(Subscription { registration: ManuallyDrop::new(registration) })
}

/// A subscription; dropping it ends it. A drop waits while another thread is in the callback; inside the callback itself
/// it returns at once.
pub struct Subscription {
    registration: ManuallyDrop<callbacks::Registration>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // SAFETY: taken once, as the subscription is gone after this.
        unsafe { ManuallyDrop::take(&mut self.registration) }.unregister();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("stats", &self.registration.stats()).finish()
    }
}

/// In a forked child that goes on with the shrinkers and subscriptions of its parent: makes the threads that call them,
/// which `fork` does not copy. Registering something does the same. No other thread may drop a shrinker or a
/// subscription meanwhile.
pub fn resume_after_fork() {
    callbacks::resume();
}
