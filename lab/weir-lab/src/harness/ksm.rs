//! The kernel's same-page merging: on for a while, and what it came to.

use crate::harness::prelude::*;

const KSM: &str = "/sys/kernel/mm/ksm";

/// Has the kernel merge pages, and fast, until the guard goes.
pub fn switch_on() -> Result<restore::RestoreGuard> {
    let files = ["pages_to_scan", "run"].map(|name| format!("{KSM}/{name}"));
    let before = files.clone().map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let undo = files.clone();
    let guard = restore::on_end(move || {
        for (file, value) in undo.iter().zip(&before) {
            if let Err(why) = std::fs::write(file, value.trim()) {
                eprintln!("weir-lab: {file} stays changed: {why}");
            }
        }
    });
    for (file, value) in files.iter().zip(["2000", "1"]) {
        std::fs::write(file, value).with_context(|| format!("{file}: merging needs root"))?;
    }
    Ok(guard)
}

/// Processor time of the kernel's merging thread; 0 where there is none.
pub fn seconds() -> f64 {
    static KSMD: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    let find = || proc_files::children(2).into_iter().find(|&pid| proc_files::is_named(pid, "ksmd"));
    KSMD.get_or_init(find).and_then(|pid| cpu_seconds(pid).ok()).unwrap_or(0.0)
}

/// Pages of a process that are merged now; 0 where the kernel does not say.
pub fn pages_of(pid: u32) -> f64 {
    std::fs::read_to_string(format!("/proc/{pid}/ksm_merging_pages"))
        .map_or(0.0, |text| text.trim().parse().unwrap_or(0.0))
}
