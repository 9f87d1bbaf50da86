//! The processes that the program consists of: all that descend from this one. Those that let their parents die count
//! as well (this process adopts them, see `reap.rs`).

use crate::figures::run::ProcessMemory;
use procfs::process::{Process, all_processes};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// This process's id as `/proc` has it, which is another's where `/proc` shows an outer PID namespace; none without a
/// `/proc`.
pub fn own_pid() -> Option<i32> {
    std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// The numbers of all processes.
pub fn numbers() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Those of `all` that descend from a process, parents before children; `numbers` gives one's own and its parent's.
pub fn below<T>(all: &[T], pid: i32, numbers: impl Fn(&T) -> (i32, i32)) -> Vec<&T> {
    let mut children: HashMap<i32, Vec<&T>> = HashMap::new();
    all.iter().for_each(|it| children.entry(numbers(it).1).or_default().push(it));
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut at = 0;
    while let Some(it) = found.get(at) {
        // Each list is taken once: a circle, which numbers used again could make, ends.
        found.extend(children.remove(&numbers(it).0).unwrap_or_default());
        at += 1;
    }
    found
}

/// The tree below this process.
#[derive(Clone, Default)]
pub struct ProcessTree {
    /// Children that were there before the program, until they are reaped. They are of the program that became this one by `exec`.
    /// All copies of the tree share them.
    not_ours: Arc<Mutex<HashSet<i32>>>,
}

impl ProcessTree {
    /// To be called before the program is started.
    pub fn new() -> Self {
        Self { not_ours: Arc::new(Mutex::new(own_pid().map(children).unwrap_or_default().into_iter().collect())) }
    }

    /// A child was reaped: whether it was of the tree. Its number may be that of a process of the tree from now on.
    pub fn reaped(&self, pid: i32) -> bool {
        !self.not_ours().remove(&pid)
    }

    fn not_ours(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.not_ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of all processes now, parents before children.
    pub fn pids(&self) -> Vec<i32> {
        let Some(own) = own_pid() else { return Vec::new() };
        if !Path::new("/proc/thread-self/children").exists() {
            return self.pids_by_parents(own);
        }
        let (mut found, mut seen) = (vec![own], HashSet::from([own]));
        let mut at = 0;
        while let Some(&pid) = found.get(at) {
            // A process that is handed on while the files are read may show up twice.
            let children = children(pid);
            let not_ours = self.not_ours();
            found.extend(children.into_iter().filter(|pid| !not_ours.contains(pid) && seen.insert(*pid)));
            at += 1;
        }
        found.split_off(1)
    }

    /// The processes that are there now, with their resident bytes.
    pub fn alive(&self) -> Vec<ProcessMemory> {
        let named = |pid| {
            let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
            let bytes = stat.rss * procfs::page_size();
            (bytes > 0).then_some(ProcessMemory { name: stat.comm, pid, bytes })
        };
        self.pids().into_iter().filter_map(named).collect()
    }

    /// As [`Self::pids`], for kernels without `CONFIG_PROC_CHILDREN`: from all processes of the machine.
    fn pids_by_parents(&self, own: i32) -> Vec<i32> {
        let all = all_processes().into_iter().flatten().filter_map(|process| process.ok()?.stat().ok());
        let mut may_be: Vec<_> = all.collect();
        let not_ours = self.not_ours();
        may_be.retain(|stat| !not_ours.contains(&stat.pid));
        below(&may_be, own, |stat| (stat.pid, stat.ppid)).iter().map(|stat| stat.pid).collect()
    }
}

/// The children of all threads of a process. One that ends while this is read may hide others in this read.
fn children(pid: i32) -> Vec<i32> {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    let of_task = |task: procfs::process::Task| task.children().unwrap_or_default();
    tasks.into_iter().flatten().flatten().flat_map(of_task).map(|pid| pid as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_in_both_ways() {
        let tree = ProcessTree::new();
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 3600 & wait"]).spawn().unwrap();
        let (own, pid) = (own_pid().unwrap(), shell.id() as i32);
        weir_testing::wait_until("the shell's child", || children(pid).len() == 1);
        let grandchild = children(pid)[0];
        for found in [tree.pids(), tree.pids_by_parents(own)] {
            assert!(found.contains(&pid) && found.contains(&grandchild), "{found:?}");
        }
        let later = ProcessTree::new();
        assert!(!later.pids().contains(&grandchild), "what was there before is not ours");
        assert_eq!([(); 2].map(|()| later.clone().reaped(pid)), [false, true], "its number may be used again");
        for found in [later.pids(), later.pids_by_parents(own)] {
            assert!(found.contains(&pid) && found.contains(&grandchild), "{found:?}");
        }
        // SAFETY: a process that this test made and that has not been waited for.
        unsafe { libc::kill(grandchild, libc::SIGKILL) };
        shell.wait().unwrap();
    }
}
