//! The machine is short: processes are asked for what costs them least, and hold it back until it is not short any more.
//! Nobody is killed.

use crate::machine::shortage;
use crate::policy::relief::{missing, shares};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_cli::shrink::{self, Asked};
use weir_cli::survey::Process;

/// For so long the machine must not have been short before anybody grows again: caches that refill would make it short at once.
const CALM: Duration = Duration::from_secs(60);

/// See the module.
pub struct Relief {
    /// The part of the machine's memory below which too little is available.
    low: f64,
    /// What was asked of whom, and still is.
    asked: BTreeMap<i32, (u64, Asked)>,
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
        self.act(processes, missing)
    }

    fn act<'a>(&mut self, processes: impl Iterator<Item = &'a Process>, missing: u64) -> usize {
        if missing == 0 {
            if self.short_at.is_none_or(|at| at.elapsed() >= CALM) {
                self.asked.clear();
            }
            return 0;
        }
        self.short_at = Some(Instant::now());
        let held = self.asked.iter().map(|(&pid, (bytes, _))| (pid, *bytes)).collect();
        let shares = shares(processes, &held, missing);
        let before = self.asked.len();
        for (pid, bytes) in shares {
            // Who cannot be asked gives as it would without an agent.
            if let Ok(asked) = shrink::ask(pid, bytes) {
                self.asked.insert(pid, (bytes, asked));
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

    #[test]
    fn where_it_is_not_short_nobody_is_asked() {
        let mut relief = Relief::below(0.0);
        assert_eq!((relief.look([].iter()), relief.holding()), (0, 0));
        assert_eq!((relief.act([].iter(), 1 << 30), relief.asked_bytes), (0, 0), "and where nobody can be");
    }
}
