//! How long, how wide and from which seed a workload runs, and the threads it runs on.

use anyhow::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_lab::common::words::Words;

/// The seed of every program that is given none.
pub const SEED: u64 = 0x5eed;

/// A workload's settings.
#[derive(Clone, Debug)]
pub struct Run {
    pub threads: usize,
    pub ms: u64,
    /// Thousandths of the work of a full run.
    pub permille: u64,
    pub seed: u64,
}

impl Run {
    /// Reads threads, ms, permille and seed.
    pub fn read(words: &Words, threads: usize, ms: u64) -> Result<Run> {
        let threads = words.number_or("threads", threads as u64)?.max(1) as usize;
        let (ms, permille) = (words.number_or("ms", ms)?, words.number_or("permille", 1000)?);
        Ok(Run { threads, ms, permille, seed: words.number_or("seed", SEED)? })
    }

    /// A part of the full run's steps, at least one.
    pub fn scaled(&self, full: u64) -> u64 {
        (full * self.permille / 1000).max(1)
    }

    /// Does the work on every thread; the sum of what each did.
    pub fn on_threads(&self, work: impl Fn(usize) -> u64 + Sync) -> u64 {
        if self.threads == 1 {
            return work(0);
        }
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..self.threads).map(|index| scope.spawn(move || work(index))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
        })
    }

    /// Does the work on every thread until the flag is set, when the time is over.
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
