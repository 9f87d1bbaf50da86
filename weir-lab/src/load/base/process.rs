//! What the load programs ask of the kernel about themselves.

/// The resident set's high mark, of this program alone: what `wait4` tells has the harness's own pages in it, from
/// between fork and exec.
pub fn peak_kib() -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|why| format!("/proc/self/status: {why}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).ok_or_else(|| "no VmHWM in /proc".into())
}

/// A child does not outlive a harness that was killed.
pub fn end_with_the_harness() {
    // SAFETY: sets this process's parent-death signal; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
