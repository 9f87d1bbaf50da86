//! Figures that the load programs read in `/proc`, how they talk with the harness, and how they end. Without a library, and
//! without an allocation: both would be part of what is measured.

use crate::base::mem::PAGE;
use anyhow::{Context, Result};
use std::io::Write;

/// A number of kB in a file of `/proc/self`, in bytes.
pub fn proc_field(file: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/{file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start_matches(':').split_whitespace().next());
    let kib: u64 = line.with_context(|| format!("no {name} in /proc/self/{file}"))?.parse()?;
    Ok(kib * 1024)
}

/// The resident set's high mark, in KiB.
pub fn peak_kib() -> Result<u64> {
    proc_field("status", "VmHWM").map(|bytes| bytes / 1024)
}

/// The resident set, in bytes, of a process's `statm`.
pub fn resident(statm: &std::ffi::CStr) -> u64 {
    let mut text = [0u8; 128];
    // SAFETY: the path ends with a zero byte, and as much is read as the buffer holds.
    let length = unsafe {
        let file = libc::open(statm.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length.max(0) as usize
    };
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE as u64
}

/// The resident set of this process, in bytes.
pub fn own_resident() -> u64 {
    resident(c"/proc/self/statm")
}

/// Says a line to the harness.
pub fn say(line: std::fmt::Arguments) {
    let mut buffer = [0u8; 512];
    let mut rest = &mut buffer[..];
    let _ = rest.write_fmt(line);
    let _ = rest.write_all(b"\n");
    let unused = rest.len();
    // SAFETY: the bytes written are within the buffer.
    unsafe { libc::write(1, buffer.as_ptr().cast(), buffer.len() - unused) };
}

/// Waits for a byte of the harness's; the end of the input ends the program.
pub fn listen() {
    let mut byte = 0u8;
    // SAFETY: one byte is read into a place for one.
    if unsafe { libc::read(0, (&raw mut byte).cast(), 1) } != 1 {
        end()
    }
}

/// Says what a phase came to, and waits to be let into the next.
pub fn phase(line: std::fmt::Arguments) {
    say(line);
    listen();
}

/// Ends at once: what is held is not freed.
pub fn end() -> ! {
    // SAFETY: ends the process, from any thread.
    unsafe { libc::_exit(0) }
}

/// Has the kernel kill this process when the harness ends.
pub fn end_with_the_harness() {
    // SAFETY: changes what signal comes at the parent's end, nothing else.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
