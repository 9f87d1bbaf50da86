//! `WEIR_PROFILE=NAME`: samples for the heap profile from the start, and the profile in the file `NAME.PID` at the end.
//!
//! Each process writes a file of its own, also a forked child, and a program that it becomes by `exec`. One that is killed, or
//! ends by `_exit`, writes none. A relative name counts from the directory that the process is in at its end. The file is a new
//! one: what had the name before loses it.

use core::cell::UnsafeCell;

use crate::messages;
use crate::os::fd;
use crate::os::file::path::FixedPath;
use crate::os::process;
use crate::os::signals;
use crate::os::syscall::{Errno, Result};
use crate::platform::linux::Engine;
use crate::platform::statics::TUNABLES;
use crate::profile::{switch, text};

/// Mean of the bytes between two samples, where the setting `profile_bytes` says nothing else: the mean that it recommends.
const MEAN: u64 = 512 << 10;

/// The name; empty: none.
struct Name(UnsafeCell<FixedPath>);

// SAFETY: it is written once, by the thread that reads the environment at the start of the process. It is read by that thread
// later, and at the end of the process by the thread that ends it.
unsafe impl Sync for Name {}

static NAME: Name = Name(UnsafeCell::new(FixedPath::new()));

fn name() -> &'static FixedPath {
    // SAFETY: no thread writes it any more, as said above.
    unsafe { &*NAME.0.get() }
}

/// Keeps the name that the environment gives. To be called once, as the environment is read.
pub(super) fn keep_name(named: &[u8]) {
    match FixedPath::from_parts(&[named]) {
        // SAFETY: the one thread that reads the environment, before anything else looks at the name.
        Some(name) => unsafe { *NAME.0.get() = name },
        None => messages::profile_not_written(named, Errno::ENAMETOOLONG),
    }
}

/// Switches samples on, if the environment wants it.
pub(super) fn begin(heap: &Engine) {
    if !name().as_bytes().is_empty() && TUNABLES.profile_bytes.get() == 0 {
        TUNABLES.profile_bytes.set(MEAN);
    }
    if TUNABLES.profile_bytes.get() != 0 {
        switch::follow_setting(heap);
    }
}

/// Writes the file, if there is a name and a profile. By system calls alone, and under no lock of the heap.
pub(super) fn write(heap: &Engine) {
    let (name, Some(profile)) = (name(), heap.profile().table()) else { return };
    if name.as_bytes().is_empty() {
        return;
    }
    let mut path = name.clone();
    let fits = core::fmt::write(&mut path, format_args!(".{}", process::getpid())).is_ok();
    let written = if fits { write_file(&path, |file| text::write(profile, file)) } else { Err(Errno::ENAMETOOLONG) };
    if let Err(why) = written {
        messages::profile_not_written(path.as_bytes(), why);
    }
}

fn write_file(path: &FixedPath, write: impl FnOnce(i32) -> Result<()>) -> Result<()> {
    let file = create(path)?;
    // A file that may grow no more is said, and does not end the program by a signal.
    let written = signals::without_write_signals(|| write(file));
    fd::close(file).and(written)
}

/// Makes a file that its owner alone may read: whoever may learns where the process had its code and its blocks. So it is always
/// a new one. What had the name loses it. That may be a file that others have open, or that has other names, a link, or a FIFO.
fn create(path: &FixedPath) -> Result<i32> {
    let create = || fd::create(path.as_c_str(), fd::O_WRONLY | fd::O_CREAT | fd::O_EXCL | fd::O_NOCTTY, 0o600);
    match create() {
        Err(Errno::EEXIST) => fd::unlink(path.as_c_str()).and_then(|()| create()),
        made => made,
    }
}
