//! How long, how wide and from which seed a workload runs, and the threads it runs on.

use crate::base::args::read_numbers;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the harness asks of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Threads that work at once.
    pub threads: usize,
    /// How long a fixed-time workload runs.
    pub ms: u64,
    /// Fixed-work workloads do this share of their full work, in thousandths.
    pub permille: u64,
    /// Where the random numbers start: the same for every allocator.
    pub seed: u64,
}

impl Default for Run {
    fn default() -> Self {
        Run { threads: 1, ms: 1000, permille: 1000, seed: 0x5eed }
    }
}

impl Run {
    /// Reads `key=value` words.
    pub fn read_args(&mut self, args: impl Iterator<Item = String>) -> Result<(), String> {
        read_numbers(args, "threads (1 or more), ms, permille, seed", |key, number| {
            match key {
                "threads" if number > 0 => self.threads = number as usize,
                "ms" => self.ms = number,
                "permille" => self.permille = number,
                "seed" => self.seed = number,
                _ => return false,
            }
            true
        })
    }

    /// `full` operations scaled to this run, at least one.
    pub fn scaled(&self, full: u64) -> u64 {
        (full * self.permille / 1000).max(1)
    }

    /// Runs `work(thread index)` on every thread and adds up what each says it did.
    pub fn on_threads(&self, work: impl Fn(usize) -> u64 + Sync) -> u64 {
        if self.threads == 1 {
            return work(0);
        }
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..self.threads)
                .map(|index| {
                    let work = &work;
                    scope.spawn(move || work(index))
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().unwrap_or(0)).sum()
        })
    }

    /// As [`Run::on_threads`], with a flag that is raised when the time is over.
    pub fn until_time_is_over(&self, work: impl Fn(usize, &AtomicBool) -> u64 + Sync) -> u64 {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(self.ms));
                over.store(true, Ordering::Relaxed);
            });
            self.on_threads(|index| work(index, &over))
        })
    }
}
