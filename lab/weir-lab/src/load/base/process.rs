//! What the load programs read in `/proc`, and how they end. Without a library: it would be part of what is measured.

use crate::base::mem::PAGE;

/// The resident set's high mark, of this program alone: what `wait4` tells has the harness's own pages in it, from
/// between fork and exec.
pub fn peak_kib() -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|why| format!("/proc/self/status: {why}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).ok_or_else(|| "no VmHWM in /proc".into())
}

/// Resident bytes by the text of a `/proc/PID/statm`. Allocates nothing.
pub fn resident_in_statm(text: &[u8]) -> Option<u64> {
    let pages = std::str::from_utf8(text).ok()?.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * PAGE as u64)
}

/// Ends this process if the harness ends first.
pub fn end_with_the_harness() {
    // SAFETY: sets this process's parent-death signal; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
