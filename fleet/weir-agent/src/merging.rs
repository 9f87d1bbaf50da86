//! Same-page merging, for pods that ask for it: the kernel's is switched on, and each process told to make sparse pages equal.
//! Neither is undone when the agent ends: what is merged would need memory of its own again, at once.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};
use weir_cli::ctl;
use weir_cli::survey::Process;

/// A process by its number, its start and its name. One that executes another program keeps the first two.
type Named = (i32, u64, String);

/// Looks after which processes are told again that could not be told. One that has just started may have no thread that listens.
const EVERY: u32 = 8;

/// See the module.
pub struct Merging {
    /// The kernel's directory of switches.
    ksm: PathBuf,
    /// Processes that were told.
    told: HashSet<Named>,
    /// Processes that could not be told.
    refused: HashSet<Named>,
    looks: u32,
}

impl Merging {
    /// By the kernel's directory, `/sys/kernel/mm/ksm`.
    pub fn by(ksm: &Path) -> Self {
        Self { ksm: ksm.to_owned(), told: HashSet::new(), refused: HashSet::new(), looks: 0 }
    }

    /// Whether the kernel merges.
    fn is_on(&self) -> io::Result<bool> {
        Ok(fs::read_to_string(self.ksm.join("run"))?.trim() == "1")
    }

    /// Tells the processes of pods that ask for it. What could not be done, a line each.
    pub fn tell(&mut self, processes: &[Process]) -> Vec<String> {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(EVERY) {
            self.refused.clear();
        }
        let named = |it: &Process| (it.pid, it.started_ticks, it.command.clone());
        let there: HashSet<Named> = processes.iter().map(named).collect();
        self.told.retain(|it| there.contains(it));
        self.refused.retain(|it| there.contains(it));
        let is_new = |it: &&Process| !self.told.contains(&named(it)) && !self.refused.contains(&named(it));
        let new: Vec<&Process> = processes.iter().filter(is_new).collect();
        if new.is_empty() {
            return Vec::new();
        }
        let run = self.ksm.join("run");
        let switched = self.is_on().and_then(|is_on| if is_on { Ok(()) } else { fs::write(&run, "1") });
        let pids: Vec<i32> = new.iter().map(|it| it.pid).collect();
        let mut failed = Vec::new();
        for (it, set) in new.into_iter().zip(ctl::set_each(&pids, "merge", 1)) {
            match set {
                Ok(()) => drop(self.told.insert(named(it))),
                Err(why) => {
                    failed.push(format!("{} does not merge: {why}", it.command));
                    self.refused.insert(named(it));
                }
            }
        }
        failed.extend(switched.err().map(|why| format!("{} cannot be set to 1: {why}", run.display())));
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_cli::survey::Memory;

    #[test]
    fn the_kernel_is_told_once_somebody_asks_and_each_process_until_it_is() {
        let ksm = tempfile::tempdir().unwrap();
        let run = ksm.path().join("run");
        fs::write(&run, "0\n").unwrap();
        let mut merging = Merging::by(ksm.path());
        assert!(merging.tell(&[]).is_empty());
        assert_eq!(fs::read_to_string(&run).unwrap(), "0\n");
        // This process has no Weir.
        let own = Process {
            pid: std::process::id() as i32,
            started_ticks: 1,
            command: "own".into(),
            memory: Memory::default(),
            evictable_bytes: 0,
            released_bytes: 0,
            touched_again_bytes: 0,
            costs: Vec::new(),
        };
        let failed = merging.tell(std::slice::from_ref(&own));
        assert!(failed.len() == 1 && failed[0].starts_with("own does not merge: "), "{failed:?}");
        assert_eq!(fs::read_to_string(&run).unwrap(), "1");
        assert!(merging.tell(std::slice::from_ref(&own)).is_empty(), "it could not be told");
        let tried = (0..EVERY).filter(|_| !merging.tell(std::slice::from_ref(&own)).is_empty());
        assert_eq!(tried.count(), 1, "it is tried again");
        let other = Process { command: "other".into(), ..own.clone() };
        let failed = merging.tell(&[other]);
        assert!(
            failed.len() == 1 && failed[0].starts_with("other does not merge: "),
            "it executes another: {failed:?}"
        );
        fs::remove_file(&run).unwrap();
        let failed = merging.tell(&[Process { pid: i32::MAX, ..own }]);
        assert!(failed.len() == 2 && failed[1].contains("run cannot be set to 1"), "{failed:?}");
    }
}
