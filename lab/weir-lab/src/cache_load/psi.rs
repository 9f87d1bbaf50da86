//! A cache's size as a program without Weir would move it: smaller at each event of the kernel's pressure, larger in each
//! calm time.

use crate::caches::Cache;
use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// The kernel's own file of what the machine stalls for memory: groups of version 1 have none.
const PRESSURE: &str = "/proc/pressure/memory";
/// An event is 100 ms of stalls within two seconds, each of some task. Who has no rights may ask for no shorter window.
const TRIGGER: &[u8] = b"some 100000 2000000\0";
/// After so many milliseconds without an event the cache grows. More than the trigger's window: the kernel tells of one in each at
/// most, and under pressure that does not end there is to be no growth.
const CALM: libc::c_int = 2500;

/// Begins at three quarters of `limit`. An event takes a quarter of the size, a calm time adds a 13th of the limit.
pub fn follow(cache: &'static dyn Cache<Arc<[u8]>>, limit: u64) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(PRESSURE);
    let mut file = file.with_context(|| format!("cannot open {PRESSURE}"))?;
    file.write_all(TRIGGER).with_context(|| format!("{PRESSURE} takes no trigger"))?;
    let mut size = limit / 4 * 3;
    cache.resize(size);
    std::thread::Builder::new().name("psi".into()).spawn(move || {
        while let Ok(is_pressed) = wait(&file) {
            size = if is_pressed { (size / 4 * 3).max(limit / 64) } else { (size + limit / 13).min(limit / 16 * 15) };
            cache.resize(size);
            if is_pressed {
                // SAFETY: takes no pointer. What was evicted lies free in the C library's heap until then.
                unsafe { libc::malloc_trim(0) };
            }
        }
    })?;
    Ok(())
}

/// Whether there was an event, else a calm time has passed.
fn wait(file: &File) -> Result<bool> {
    let mut event = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
    // SAFETY: `event` is one entry, and lives until the call returns.
    let events = unsafe { libc::poll(&raw mut event, 1, CALM) };
    ensure!(event.revents & libc::POLLERR == 0, "{PRESSURE} is gone");
    Ok(events > 0)
}
