//! The machine is short: processes are asked for what costs them least, and hold it back until it is not short any more.
//! Nobody is killed.

use crate::machine::shortage;
use crate::policy::relief::{missing, shares};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use weir_cli::shrink::{self, Asked};
use weir_cli::survey::Process;

/// For so long the machine must not have been short before anybody grows again: caches that refill would make it short at once.
const CALM: Duration = Duration::from_secs(60);

/// A process: its number, and when it was started. A later one may have the number.
type Named = (i32, u64);

/// See the module.
pub struct Relief<A = Asked> {
    /// The part of the machine's memory below which too little is available.
    low: f64,
    /// What was asked of whom, and still is.
    asked: BTreeMap<Named, (u64, A)>,
    short_at: Option<Instant>,
    /// Bytes that were asked for, since the start.
    pub asked_bytes: u64,
}

impl Relief {
    /// Below that part of the machine's memory.
    pub fn below(low: f64) -> Self {
        Self { low, asked: BTreeMap::new(), short_at: None, asked_bytes: 0 }
    }

    /// Asks, if the machine is short; takes it back, if it was not for a while. The number of processes asked now.
    pub fn look<'a>(&mut self, processes: impl Iterator<Item = &'a Process>) -> usize {
        let missing = shortage::now().map_or(0, |state| missing(&state, self.low));
        self.act(processes, missing, |pid, bytes| shrink::ask(pid, bytes).ok())
    }
}

impl<A> Relief<A> {
    fn act<'a>(
        &mut self,
        processes: impl Iterator<Item = &'a Process>,
        missing: u64,
        ask: impl Fn(i32, u64) -> Option<A>,
    ) -> usize {
        let processes: Vec<&Process> = processes.collect();
        let started: HashMap<i32, u64> = processes.iter().map(|it| (it.pid, it.started_ticks)).collect();
        // Who has ended holds nothing back, and its number may be another's by now.
        self.asked.retain(|(pid, at), _| started.get(pid) == Some(at));
        if missing == 0 {
            if self.short_at.is_none_or(|at| at.elapsed() >= CALM) {
                self.asked.clear();
            }
            return 0;
        }
        self.short_at = Some(Instant::now());
        let held = self.asked.iter().map(|(&(pid, _), (bytes, _))| (pid, *bytes)).collect();
        let shares = shares(processes.into_iter(), &held, missing);
        let before = self.asked.len();
        for (pid, bytes) in shares {
            let Some(&at) = started.get(&pid) else { continue };
            // Who cannot be asked gives as it would without an agent.
            if let Some(asked) = ask(pid, bytes) {
                self.asked.insert((pid, at), (bytes, asked));
                self.asked_bytes = self.asked_bytes.saturating_add(bytes);
            }
        }
        self.asked.len() - before
    }

    /// How many processes hold something back.
    pub fn holding(&self) -> usize {
        self.asked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_cli::survey::{Cost, Memory};

    fn process(pid: i32, started_ticks: u64) -> Process {
        Process {
            pid,
            started_ticks,
            command: String::new(),
            memory: Memory::default(),
            evictable_bytes: 0,
            released_bytes: 0,
            touched_again_bytes: 0,
            costs: vec![Cost { bytes: 64 << 20, once_ns: 1, ..Cost::default() }],
        }
    }

    #[test]
    fn who_has_ended_is_forgotten_and_a_later_one_of_its_number_is_asked() {
        let mut relief = Relief { low: 0.0, asked: BTreeMap::new(), short_at: None, asked_bytes: 0 };
        let all = [process(1, 10), process(2, 20)];
        let mut asked = |all: &[Process], missing: u64| {
            let new = relief.act(all.iter(), missing, |_, _| Some(()));
            (new, relief.holding())
        };
        assert_eq!(asked(&all, 1 << 30), (2, 2));
        assert_eq!(asked(&all, 1 << 30), (0, 2), "each once");
        assert_eq!(asked(&all[..1], 1 << 30), (0, 1), "the second has ended");
        assert_eq!(asked(&[process(1, 30)], 1 << 30), (1, 1), "the first has, and another has its number");
        assert_eq!(asked(&[], 0), (0, 0));
    }

    #[test]
    fn where_it_is_not_short_nobody_is_asked() {
        let mut relief = Relief::below(0.0);
        assert_eq!((relief.look([].iter()), relief.holding()), (0, 0));
        let nobody = relief.act([].iter(), 1 << 30, |_, _| None);
        assert_eq!((nobody, relief.asked_bytes), (0, 0), "and where nobody can be");
    }
}
