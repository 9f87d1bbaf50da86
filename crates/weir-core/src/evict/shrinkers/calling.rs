//! A thread that calls a program's callbacks: it takes an entry of its queue, runs it under no lock, and ends the
//! run. The protocol is told in [`super`].

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::callback::{
    BROKEN, Class, EVENT, Entry, GONE, LATE, LEAVING, NAMED, NOT_SERVED, Panicked, Queue, RELIEF, RING, RUNNING, SCAN,
    SCANNING, Scan, ScanReason, TOLD,
};
use super::shrink::shrink;
use super::{Callbacks, List, callback_ns, thread_of};
use crate::base::time::Time;
use crate::platform::lock::Guard;
use crate::platform::{Clock, Diagnostics, Wait, rank};
use crate::reclaim::Event;

pub use super::callback::SLOW_NS;

/// The next thing that a thread of a queue does.
#[derive(Debug)]
pub enum Taken {
    /// The thread runs this by [`Callbacks::run`].
    Job(Job),
    /// The thread looks again: something was named.
    Again,
    /// The thread sleeps on [`Queue::posted`], and looks again at this time at the latest, ns. It says so by [`Callbacks::woke`].
    Sleep(Option<Time>),
}

/// An entry that the calling thread is to run.
#[derive(Debug)]
pub struct Job {
    entry: NonNull<Entry>,
    /// Whether another callback of the queue runs and is late.
    pub beside_late: bool,
    wanted: u32,
    scan: Scan,
    event: Event,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The callback panicked. Unless it is an evictable cache's it will not be called again.
    pub panicked: bool,
    /// The entry was disposed of, and with it perhaps its queue.
    pub gone: bool,
    /// Another thread has taken over the queue meanwhile.
    pub replaced: bool,
}

type Held<'a, P> = Guard<'a, List, P, { rank::CALLBACKS }>;

impl Callbacks {
    /// The next thing that the calling thread, one of `queue`'s, is to do. Names a callback that has run for too long, of whichever
    /// queue.
    pub fn take<P: Wait + Clock + Diagnostics>(&self, platform: &P, queue: &Queue) -> Taken {
        let now = platform.now();
        let Some(mut list) = Self::none_is_slow(platform, self.list.lock(platform), now) else { return Taken::Again };
        let late_at = |entry: &Entry| Time(entry.since.load(Relaxed)) + callback_ns(platform);
        // SAFETY: null, or an entry that runs, which is not disposed of before it has left the queue under this lock.
        let current = unsafe { queue.current.load(Relaxed).as_ref() };
        let is_late = current.is_some_and(|entry| {
            if now >= late_at(entry) {
                entry.set(LATE);
            }
            entry.is(LATE)
        });
        if current.is_none() || is_late {
            let is_ready = |entry: &&Entry| core::ptr::eq(entry.queue.as_ptr(), queue) && entry.is_ready();
            let taken = list.taken;
            // Each in its turn, or one that always has work would be served alone.
            let by_turn = |entry: &&Entry| entry.number.load(Relaxed).wrapping_sub(taken + 1);
            if let Some(entry) = list.iter().filter(is_ready).min_by_key(by_turn) {
                let number = entry.number.load(Relaxed);
                let job = self.begin(platform, queue, entry, now, is_late);
                list.taken = number;
                return Taken::Job(job);
            }
        }
        // The next moment at which there is something to do unless more is posted: a callback is late, or to be named.
        let mut wake_at: Option<Time> = None;
        for entry in list.iter().filter(|entry| entry.is(RUNNING) || entry.wanted.load(Relaxed) != 0) {
            let late_at = Some(late_at(entry)).filter(|&at| at > now && core::ptr::eq(entry.queue(), queue));
            // Between two of its calls: the next one begins now at the earliest.
            let next = || (entry.is(RUNNING) && !entry.is(NAMED)).then_some(now + SLOW_NS);
            let name_at = entry.named_at().or_else(next).filter(|&at| at > now);
            wake_at = [wake_at, late_at, name_at].into_iter().flatten().min();
        }
        Taken::Sleep(wake_at)
    }

    /// The calling thread, one of a queue's, woke from a sleep until `until` at the latest. Where that was so long ago the process
    /// stood still meanwhile, and the callbacks that run stood still with it.
    pub fn woke<P: Wait + Clock>(&self, platform: &P, until: Option<Time>) {
        let now = platform.now();
        if until.is_none_or(|until| now.since(until) < SLOW_NS) {
            return;
        }
        for entry in self.list.lock(platform).iter().filter(|entry| entry.is(RUNNING)) {
            entry.since.store(now.0, Relaxed);
            // Its call may end at this moment.
            let _ = entry.called.fetch_update(Relaxed, Relaxed, |called| (called != 0).then_some(now.0));
        }
    }

    /// Names the callbacks that have run for too long. For the balancer: each thread that could do it in [`Callbacks::take`] may be
    /// in a callback itself, or asleep.
    #[inline(never)]
    pub fn name_slow<P: Wait + Clock + Diagnostics>(&self, platform: &P) {
        if self.counts.iter().any(|count| count.load(Relaxed) > 0) {
            while Self::none_is_slow(platform, self.list.lock(platform), platform.now()).is_none() {}
        }
    }

    /// Names one callback that has run for too long, under no lock; where there is none the lock comes back.
    fn none_is_slow<'a, P: Wait + Diagnostics>(platform: &P, list: Held<'a, P>, now: Time) -> Option<Held<'a, P>> {
        let slow = |entry: &&Entry| entry.named_at().is_some_and(|at| now >= at);
        let named = list.iter().find(slow).map(|entry| {
            entry.set(NAMED);
            let has_thread = entry.queue().maker.load(Relaxed) != 0;
            (entry.name, now.since(Time(entry.called.load(Relaxed))), has_thread)
        });
        let Some((name, ns, has_thread)) = named else { return Some(list) };
        drop(list);
        platform.callback_is_slow(name.bytes(), ns.0, has_thread);
        None
    }

    /// The calling thread is about to run an entry.
    fn begin<P: Wait>(&self, platform: &P, queue: &Queue, entry: &Entry, now: Time, beside_late: bool) -> Job {
        entry.set(RUNNING);
        entry.clear(LATE | NAMED);
        let _ = entry.spared_until.compare_exchange(NOT_SERVED, 0, Relaxed, Relaxed);
        entry.runner.store(thread_of(platform), Relaxed);
        entry.since.store(now.0, Relaxed);
        queue.current.store(core::ptr::from_ref(entry).cast_mut(), Relaxed);
        let reason = match entry.reason.swap(0, Relaxed) {
            0 => ScanReason::Mild,
            1 => ScanReason::Pressure,
            2 => ScanReason::Severe,
            _ => ScanReason::Shortage,
        };
        let wanted = entry.wanted.swap(0, Relaxed);
        if wanted & SCAN != 0 {
            entry.set(SCANNING);
        }
        Job {
            entry: NonNull::from(entry),
            beside_late,
            wanted,
            scan: Scan {
                priority: entry.priority.swap(u32::MAX, Relaxed),
                most: entry.most.swap(0, Relaxed),
                enough: entry.enough.swap(0, Relaxed),
                reason,
            },
            event: Event::unpack(entry.event.load(Relaxed)),
        }
    }

    /// Runs what [`Callbacks::take`] gave, under no lock.
    pub fn run<P: Wait + Clock + Diagnostics>(&self, platform: &P, job: Job) -> Ran {
        // SAFETY: an entry that runs is not disposed of before `end` has cleared that.
        let entry = unsafe { job.entry.as_ref() };
        let mut end = End { callbacks: self, platform, entry: job.entry, ran: None };
        let result = self.call(platform, entry, &job);
        end.finish(result.is_err())
    }

    fn call<P: Clock>(&self, platform: &P, entry: &Entry, job: &Job) -> Result<(), Panicked> {
        // SAFETY: the callback lives as long as its entry, as `Entry::new` demands.
        let callback = unsafe { entry.callback.as_ref() };
        entry.calls.fetch_add(1, Relaxed);
        if job.wanted & RING != 0 {
            entry.timed(platform, || callback.ring());
        }
        if job.wanted & EVENT != 0 {
            entry.timed(platform, || callback.event(job.event))?;
        }
        let mut scanned = Ok(());
        if job.wanted & SCAN != 0 && !entry.is(GONE) {
            let (freed, result) = shrink(platform, entry, callback, job.scan);
            entry.freed.fetch_add(freed as u64, Relaxed);
            self.freed[entry.class as usize].fetch_add(freed, Relaxed);
            scanned = result;
        }
        // An evictable cache is called again after a panic: it would stay small without the relief.
        if entry.class != Class::Cache {
            scanned?;
        }
        if job.wanted & RELIEF != 0 && !entry.is(TOLD | GONE | LEAVING) {
            entry.timed(platform, || callback.relieved())?;
        }
        scanned
    }
}

/// The end of a run, also where a panic leaves it: one that no platform catches, on a thread of the program's own.
struct End<'a, P: Wait + Diagnostics> {
    callbacks: &'a Callbacks,
    platform: &'a P,
    entry: NonNull<Entry>,
    ran: Option<Ran>,
}

impl<P: Wait + Diagnostics> End<'_, P> {
    fn finish(&mut self, panicked: bool) -> Ran {
        // SAFETY: the entry runs until its state says otherwise, below.
        let entry = unsafe { self.entry.as_ref() };
        // An evictable cache is Weir's own: what panicked is a listener or a value's drop, and the next may do well.
        let is_disabled = panicked && entry.class != Class::Cache;
        if panicked {
            // Before anybody can see it: who waits for this run may be about to end the process.
            self.platform.callback_panicked(entry.name.bytes(), is_disabled);
        }
        let list: Held<'_, P> = self.callbacks.list.lock(self.platform);
        let queue = entry.queue();
        let replaced = queue.current.load(Relaxed) != self.entry.as_ptr();
        if !replaced {
            queue.current.store(null_mut(), Relaxed);
        }
        if is_disabled {
            // Unless it was unregistered, and is counted out already.
            if list.iter().any(|other| core::ptr::eq(other, entry)) {
                self.callbacks.count_shrinker(entry, |count| _ = count.fetch_sub(1, Relaxed));
            }
            entry.set(BROKEN);
        }
        let gone = entry.is(GONE);
        entry.called.store(0, Relaxed);
        entry.clear(RUNNING | SCANNING | LATE | NAMED);
        // From here on the entry is another thread's to dispose of, unless it is this one's.
        drop(list);
        self.callbacks.finished.fetch_add(1, SeqCst);
        self.platform.wake_all(&self.callbacks.finished);
        let ran = Ran { panicked, gone, replaced };
        // Before what may panic: a drop of this after it would dispose of the entry once more.
        self.ran = Some(ran);
        if gone {
            // SAFETY: off the list, and its run has ended: this thread alone has it, as the callback gave it up.
            unsafe { (self.entry.as_ref().dispose)(self.entry) };
        }
        ran
    }
}

impl<P: Wait + Diagnostics> Drop for End<'_, P> {
    fn drop(&mut self) {
        if self.ran.is_none() {
            self.finish(true);
        }
    }
}
