//! Watching the program's processes until they end.

use super::sampler::Sampler;
use super::summary;
use super::trace::{self, Trace};
use crate::base::output;
use crate::base::units::bytes;
use crate::command_line::RunOptions;
use crate::figures::memory::Heap;
use crate::figures::run::Totals;
use crate::processes::reap::{self, ReapedProgram};
use crate::processes::signals;
use crate::processes::stats_file::StatsFile;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Samples and reports on a second thread while this one forwards signals and waits for the end. Where no thread is to be had,
/// the program runs all the same, and the sampler says why it was not measured.
pub fn watch(
    options: &RunOptions,
    program: i32,
    stats: &StatsFile,
    sampler: &mut Sampler,
    caught: &mut signals::CaughtSignals,
    trace: Option<&mut Trace>,
) -> ReapedProgram {
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let tree = sampler.tree.clone();
    let (ended, refused) = std::thread::scope(|scope| {
        let watching = Watching { interval: options.stats_interval, stats, sampler: &mut *sampler, is_over, trace };
        // This thread alone handles signals: a stop is over for it before it stops the process.
        let watcher = signals::blocked(|| std::thread::Builder::new().spawn_scoped(scope, move || watching.run()));
        let ended = reap::wait(program, options.wait, &tree, caught);
        // Before the watcher is waited for: it may wait for a reader of what it writes.
        signals::release();
        drop(over);
        (ended, watcher.err())
    });
    sampler.obstacle = refused.map(|why| format!("cannot start a thread: {why}"));
    ended
}

struct Watching<'a> {
    interval: Option<Duration>,
    stats: &'a StatsFile,
    sampler: &'a mut Sampler,
    is_over: Receiver<()>,
    trace: Option<&'a mut Trace>,
}

impl Watching<'_> {
    fn run(mut self) {
        let started = Instant::now();
        let mut next_sample = started;
        let mut next_line = self.interval.map(|interval| started + interval);
        loop {
            let now = Instant::now();
            if now >= next_sample {
                next_sample = now + self.sampler.sample(self.stats);
            }
            if let (Some(at), Some(interval)) = (next_line, self.interval)
                && now >= at
            {
                self.print_line(started);
                next_line = Some((at + interval).max(now));
            }
            if self.is_over_before(next_line.map_or(next_sample, |line| line.min(next_sample))) {
                return;
            }
        }
    }

    /// Waits, following the trace if there is one; whether the program has ended.
    fn is_over_before(&mut self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let step = if self.trace.is_some() { left.min(trace::READ_INTERVAL) } else { left };
            if self.is_over.recv_timeout(step) != Err(RecvTimeoutError::Timeout) {
                return true;
            }
            if let Some(trace) = self.trace.as_deref_mut() {
                trace.follow(self.stats);
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }

    fn print_line(&self, started: Instant) {
        let t = Totals::of(self.stats);
        let g = &t.given_back_bytes;
        let (resident, processes, heap) = self
            .sampler
            .last
            .as_ref()
            .map_or(("-".into(), 0, Some(Heap::default())), |s| (bytes(s.bytes), s.processes, s.heap));
        let heap = heap.map_or("heap unknown".into(), |heap| heap.to_string());
        output::say(format_args!(
            "weir: {:.1} s: resident {resident} in {}, {heap}, given back {} idle + {} pressure + {} limit, \
             {} pressure events\n",
            started.elapsed().as_secs_f64(),
            summary::count(processes as u64),
            bytes(g.idle),
            bytes(g.pressure),
            bytes(g.limit),
            t.pressure_events,
        ));
    }
}
