//! Threads for what may block. They start when there is work for them, and end when there is none.

use super::operation::Job;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most threads. A queue of this depth is what disks use; more requests wait.
const MAX_THREADS: usize = 32;
/// A thread without work for this long ends.
const IDLE: Duration = Duration::from_secs(5);
/// A job needs little stack: a system call and a completion.
const STACK: usize = 128 << 10;

/// A pool of threads; clones share it.
#[derive(Clone, Default)]
pub struct Pool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    /// Has `job` done by a thread of the pool. Where no thread can be started, and none is there, the caller does it.
    pub fn run(&self, job: Job) {
        let mut state = self.0.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle {
            self.0.work.notify_one();
            return;
        }
        if state.threads == MAX_THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = self.0.clone();
        let thread = std::thread::Builder::new().name("weir-nbd file".into()).stack_size(STACK);
        if thread.spawn(move || shared.work()).is_ok() {
            return;
        }
        let mut state = self.0.lock();
        state.threads -= 1;
        if state.threads == 0 {
            let jobs = std::mem::take(&mut state.jobs);
            drop(state);
            jobs.into_iter().for_each(|job| job());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            }
            state.idle += 1;
            let (woken, timeout) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_job_is_done_and_many_at_a_time() {
        let (pool, (sender, done)) = (Pool::default(), mpsc::channel());
        // Each of these waits for the other: they need two threads.
        let barrier = Arc::new(std::sync::Barrier::new(2));
        for number in 0..200 {
            let (sender, barrier) = (sender.clone(), barrier.clone());
            pool.run(Box::new(move || {
                if number < 2 {
                    barrier.wait();
                }
                sender.send(number).expect("the test listens");
            }));
        }
        drop(sender);
        let mut numbers: Vec<i32> = done.iter().collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..200));
        assert!(pool.0.lock().threads <= MAX_THREADS);
    }
}
