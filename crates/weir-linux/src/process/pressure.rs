//! The level of memory pressure for a program to read: now, by waiting, or by a file descriptor.

pub use weir_core::base::cause::Cause;
pub use weir_core::base::level::Level;
use weir_core::evict::callback::{Callback, CallbackSpec, Class, Panicked};
pub use weir_core::reclaim::Event;

use crate::os::file::socket::{Bell, End};
use crate::process::callbacks::{FdError, Registration, Thread, register};
use crate::process::heap::{BACKGROUND, HEAP, on_first_use};

/// A message that is read from a descriptor of [`open_fd`]: `struct weir_pressure_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// 0: relief, 1: some, 2: severe.
    pub level: u32,
    /// 1: pressure from outside, 2: the limit that the process's user set.
    pub cause: u32,
    /// Number of the event.
    pub generation: u32,
    /// 0.
    pub reserved: u32,
}

impl From<Event> for Message {
    fn from(event: Event) -> Self {
        let (level, cause) = (event.level as u32, event.cause as u32);
        Self { level, cause, generation: event.generation, reserved: 0 }
    }
}

impl Message {
    fn bytes(self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        let words = [self.level, self.cause, self.generation, self.reserved];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }
}

/// Writes events to a descriptor.
struct Writer(Bell);

impl Callback for Writer {
    fn event(&self, event: Event) -> Result<(), Panicked> {
        self.0.put(&Message::from(event).bytes());
        Ok(())
    }
}

/// A descriptor that is readable when there was an event of `level` or above, or the relief after it. The latest one is
/// read from it as a [`Message`]. The program closes it; Weir's side ends with the registration. In a forked child it
/// is the parent's.
pub fn open_fd(level: Level) -> Result<(End, Registration), FdError> {
    let (bell, fd) = Bell::open().map_err(FdError::Os)?;
    let end = bell.end(fd);
    let spec = CallbackSpec { name: b"pressure", class: Class::Subscriber, level, ..CallbackSpec::default() };
    match register(&spec, Writer(bell), Thread::Shared) {
        Ok(registration) => Ok((end, registration)),
        Err(why) => {
            end.close();
            Err(FdError::Register(why))
        }
    }
}

/// The latest event. It is kept true while there is a listener: a callback is registered, or a [`Reader`] is there.
pub fn latest() -> Event {
    HEAP.callbacks().events().latest()
}

/// While there is one, pressure is listened for.
#[derive(Debug)]
pub struct Reader(());

impl Reader {
    /// Starts the background thread if it is not there.
    #[allow(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Self {
        on_first_use();
        HEAP.callbacks().events().add_reader();
        BACKGROUND.listen();
        Self(())
    }

    /// Sleeps until the generation is no longer `seen`, for `ns` at most, or for no reason. In a forked child, which may do nothing
    /// else, it starts the thread that listens.
    pub fn wait(&self, seen: u32, ns: Option<u64>) {
        BACKGROUND.be_there();
        HEAP.callbacks().events().wait(HEAP.platform(), seen, ns);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        HEAP.callbacks().events().remove_reader();
    }
}
