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

/// A process: its number, and when it was started. A later one may have the number.
type Named = (i32, u64);

/// See the module.
pub struct Relief<A = Asked> {
    /// The part of the machine's memory below which too little is available.
    low: f64,
    /// Who was asked, and what still is; none: it could not be.
    asked: BTreeMap<Named, Option<A>>,
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
        self.act(processes, missing, |shares| shrink::ask_each(shares).into_iter().map(Result::ok).collect())
    }
}

impl<A> Relief<A> {
    fn act<'a>(
        &mut self,
        processes: impl Iterator<Item = &'a Process>,
        missing: u64,
        ask: impl FnOnce(&[(i32, u64)]) -> Vec<Option<A>>,
    ) -> usize {
        let started: BTreeMap<i32, &Process> = processes.map(|it| (it.pid, it)).collect();
        // Who has ended holds nothing back, and its number may be another's by now.
        self.asked.retain(|(pid, at), _| started.get(pid).is_some_and(|it| it.started_ticks == *at));
        if missing == 0 {
            if self.short_at.is_none_or(|at| at.elapsed() >= CALM) {
                self.asked.clear();
            }
            return 0;
        }
        self.short_at = Some(Instant::now());
        let name = |it: &Process| (it.pid, it.started_ticks);
        let new = started.values().copied().filter(|it| !self.asked.contains_key(&name(it)));
        let shares: Vec<(i32, u64)> = shares(new, missing).into_iter().collect();
        let before = self.holding();
        // Who cannot be asked gives as it would without an agent. It is waited for once.
        for ((pid, bytes), asked) in shares.iter().zip(ask(&shares)) {
            self.asked_bytes = self.asked_bytes.saturating_add(if asked.is_some() { *bytes } else { 0 });
            self.asked.extend(started.get(pid).map(|it| (name(it), asked)));
        }
        self.holding() - before
    }

    /// How many processes hold something back.
    pub fn holding(&self) -> usize {
        self.asked.values().flatten().count()
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
            memory: Memory { resident_bytes: 64 << 20, ..Memory::default() },
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
            let new = relief.act(all.iter(), missing, |shares| vec![Some(()); shares.len()]);
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
    }

    #[test]
    fn who_does_not_answer_is_waited_for_once() {
        let mut relief = Relief { low: 0.0, asked: BTreeMap::new(), short_at: None, asked_bytes: 0 };
        let all = [process(1, 10), process(2, 20)];
        let mut seen = Vec::new();
        for _ in 0..2 {
            relief.act(all.iter(), 1 << 30, |shares| {
                seen.push(shares.iter().map(|share| share.0).collect::<Vec<_>>());
                shares.iter().map(|share| (share.0 == 2).then_some(())).collect()
            });
        }
        assert_eq!(seen, [vec![1, 2], vec![]]);
        assert_eq!((relief.holding(), relief.asked_bytes), (1, 64 << 20));
    }
}
