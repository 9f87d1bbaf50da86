//! The machine: a line that describes it, its settings for huge pages and merged ones, and who may change it. What a run
//! makes on it, groups, swap and files, is taken back when it ends.

pub mod cgroup;
pub mod leftovers;
pub mod owner;
pub mod pressure_fifo;
pub mod restore;
pub mod swap;

use crate::harness::machine::restore::{RestoreGuard, on_end};
use crate::harness::proc_files;
use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use procfs::{Current, Meminfo};
use std::fs::{self, File};
use std::sync::OnceLock;

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Of the kernel's same-page merging: whether it goes on, and how many pages it looks at each 20 ms.
const MERGING: [(&str, &str); 2] = [("/sys/kernel/mm/ksm/pages_to_scan", "2000"), ("/sys/kernel/mm/ksm/run", "1")];
/// The settings of huge pages that are in use.
pub const MODES: [&str; 2] = ["madvise", "always"];

/// One line, for the head of every table.
pub fn describe() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or_default().trim().to_string();
    let gib = Meminfo::current().map_or(f64::NAN, |memory| memory.mem_total as f64 / f64::from(1 << 30));
    let thp = huge_pages().unwrap_or_else(|_| "none".into());
    let groups = cgroup::root().map_or("none".into(), |(_, version)| format!("v{version}"));
    format!("{cpus} CPUs, {gib:.0} GiB, Linux {kernel}, huge pages: {thp}, memory cgroups: {groups}")
}

/// The setting of huge pages.
pub fn huge_pages() -> Result<String> {
    let text = fs::read_to_string(HUGE_PAGES).context(HUGE_PAGES)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Ok(chosen.with_context(|| format!("{HUGE_PAGES} chooses nothing: {}", text.trim()))?.0.to_string())
}

/// Has the setting of huge pages be so until the guard goes. An error says who may not change it.
pub fn set_huge_pages(word: &str) -> Result<Option<RestoreGuard>> {
    let before = huge_pages()?;
    if before == word {
        return Ok(None);
    }
    set(HUGE_PAGES, word, before).map(Some)
}

/// Has the kernel merge pages, and fast, until the guards go. An error says who may not change it.
pub fn switch_merging_on() -> Result<Vec<RestoreGuard>> {
    let switch = |(file, value)| set(file, value, fs::read_to_string(file).context(file)?.trim().to_string());
    MERGING.into_iter().map(switch).collect()
}

/// Processor time of the kernel's merging thread, s; 0 where there is none.
pub fn merging_seconds() -> f64 {
    static KSMD: OnceLock<Option<u32>> = OnceLock::new();
    let find = || proc_files::children(2).into_iter().find(|&pid| proc_files::is_named(pid, "ksmd"));
    KSMD.get_or_init(find).and_then(|pid| proc_files::cpu_seconds(pid).ok()).unwrap_or(0.0)
}

/// Writes a setting; it is `before` again when the guard goes.
fn set(file: &'static str, value: &str, before: String) -> Result<RestoreGuard> {
    let guard = on_end(move || {
        if let Err(why) = fs::write(file, &before) {
            eprintln!("weir-lab: {file} stays changed, it was '{before}': {why}");
        }
    });
    fs::write(file, value).with_context(|| format!("{file} stays as it is: that needs root"))?;
    Ok(guard)
}

/// Nobody else changes the machine.
pub struct ExclusiveLock(#[allow(dead_code, reason = "the lock is the open file's")] Flock<File>);

/// Waits until nobody else does, and clears what killed runs left.
pub fn lock() -> Result<ExclusiveLock> {
    let lock = Flock::lock(lock_file()?, FlockArg::LockExclusiveNonblock).or_else(|(file, _)| {
        eprintln!("weir-lab: another experiment that changes this machine is running; waiting for its end");
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, why)| why)
    })?;
    leftovers::clear();
    Ok(ExclusiveLock(lock))
}

/// Clears what killed runs left, unless somebody is at work.
pub fn clear_leftovers() -> Result<()> {
    if Flock::lock(lock_file()?, FlockArg::LockExclusiveNonblock).is_ok() {
        leftovers::clear();
    }
    Ok(())
}

fn lock_file() -> Result<File> {
    let path = std::env::temp_dir().join("weir-lab.lock");
    let opened = File::open(&path).or_else(|_| File::options().create(true).append(true).open(&path));
    opened.with_context(|| path.display().to_string())
}
