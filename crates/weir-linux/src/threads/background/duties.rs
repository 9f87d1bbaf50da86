//! The background thread while it runs. It waits for pressure, wake-ups and the ends of calm windows, and then goes through the
//! list of its duties ([`Loop::DUTIES`]).

use core::sync::atomic::Ordering::Relaxed;
use weir_core::base::level::Level;
use weir_core::base::time::Time;
use weir_core::base::zone_class::ZoneClass;
use weir_core::platform::Memory;
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::budget::Room;

use crate::os::clock::monotonic_ns;
use crate::os::process::{getpid, has_no_huge_pages};
use crate::os::rights::credentials::MainThread;
use crate::os::rights::sandbox::Sandbox;
use crate::os::tasks;
use crate::platform::linux::Engine;
use crate::platform::machine::{CountFiles, HugePages, ModeFiles};
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page::Sharing;
use crate::pressure::events::{Events, Heat};
use crate::pressure::sources::Sources;
use crate::pressure::wake::Waker;
use crate::threads::at_work::AT_WORK;
use crate::threads::background::figures::{Figures, tell_costs};
use crate::threads::background::response::{Rest, WORTH_BYTES, respond};
use crate::threads::background::steering::Steering;
use crate::threads::changes::Changes;

/// Between two comparisons of the main thread's rights, while the heap is warm and there are rights to give up.
const COMPARE_NS: u64 = 1_000_000_000;
/// Between two looks whether the program has a thread left, where the kernel does not report a thread's end. That is so before
/// Linux 5.16, or with another libc than glibc, for the main thread; before 6.9 for others.
const LAST_THREAD_NS: u64 = 60_000_000_000;
/// Until the next such look, where a thread of Weir's has just been made.
const STARTING_NS: u64 = 50_000_000;
/// Until the next such look, where a thread is on its way out. The rest of it takes microseconds, but for a last close of a file.
const ENDING_NS: u64 = 1_000_000;
/// How long a heap rests, where sources of pressure do not notify, until what calm windows keep is released all the same. Then
/// there is nothing left to hear for, and nothing is read. Longer than triggers wait to be armed.
const REST_NS: u64 = 15_000_000_000;
/// How long the node balancer works before the thread looks at everything else again.
const SLICE_NS: u64 = 10_000_000;
/// Between two looks for relief, where balance has not returned. While nobody waits for it each look doubles that, so that a
/// limit that stays near wakes a process at rest once a minute.
const RELIEF_NS: u64 = 1_000_000_000;
/// The longest such time: so long a level that is shown may have ended.
const RELIEF_MOST_NS: u64 = 60_000_000_000;
/// Until what a limit refused, the listener or the channel, is tried again. Each try doubles that.
const RETRY_NS: u64 = 10_000_000_000;
/// The longest such time.
const RETRY_MOST_NS: u64 = 3_600_000_000_000;
/// Bytes of heap for which a process that is at rest still looks whether memory is short elsewhere.
const WORTH_HEARING: u64 = 16 << 20;

/// Why the thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The program changes itself as a whole; the changer starts another thread.
    Change,
    /// The thread is not wanted any more, or the main thread's rights have changed; the next free may start another.
    Unwanted,
    /// The program has no thread left: the process is to end as its main thread did, by this status of `wait`'s.
    LastThread(i32),
}

/// Whether the tunable enables the thread.
pub(super) fn is_wanted() -> bool {
    TUNABLES.background.get() != 0
}

/// All that the thread works on, and when the next things are due, ns of the monotonic clock.
pub(super) struct Loop<'a> {
    pub heap: &'static Engine,
    pub waker: &'static Waker,
    pub sources: &'a mut Sources,
    /// A limit refused the listener.
    pub is_listener_refused: bool,
    /// Starts it; `false`: a limit refuses it.
    pub start_listener: &'a dyn Fn(&mut Sources) -> bool,
    /// The files of the machine's mode of huge pages, in the thread's own table of files.
    pub huge_mode: Option<ModeFiles>,
    /// The files that say whether the system counts what is mapped, likewise.
    pub counts: Option<CountFiles>,
    /// The thread's filters, by a file that is open since its start, unless a limit refused that.
    pub filters: Option<Sandbox>,
    /// The page of counters, as far as others may map it.
    pub sharing: Sharing,
    pub figures: Figures,
    pub steering: Steering,
    pub changes: &'static Changes,
    /// [`Changes::count`] as the thread was made.
    pub change: u32,
    /// The main thread as this one was made.
    pub main_thread: MainThread,
    /// Whether the program has rights that it might give up.
    pub has_rights: bool,
    /// Whether a thread is one of Weir's own.
    pub is_own_thread: &'a dyn Fn(u32) -> bool,
    /// Whether there may be a thread of Weir's that is not told from the program's yet.
    pub are_threads_starting: &'a dyn Fn() -> bool,
    pub schedule: Schedule,
}

#[derive(Default)]
pub(super) struct Schedule {
    /// When to compare the main thread's rights.
    compare_at: u64,
    /// When to see whether the program has a thread left, where no descriptor reports it.
    count_at: Option<u64>,
    /// When the calm window ends; `None` at rest.
    window_ends: Option<u64>,
    rest: Rest,
    /// When the node balancer is to do its next step; `None`: it sleeps.
    balance_at: Option<u64>,
    turn: Turn,
    relief: Relief,
    retry: Retry,
}

/// Tries to have what a limit refused.
#[derive(Default)]
struct Retry {
    /// When to try; `None`: nothing is refused.
    at: Option<u64>,
    /// What that was after the try before.
    pause: u64,
}

/// Looks for relief.
#[derive(Default)]
struct Relief {
    /// When to look; `None`: there is no pressure.
    at: Option<u64>,
    /// When it was due at the last look: after another event it is due later.
    due: u64,
    /// Not before this time, as balance had not returned.
    again: u64,
    /// What is added for the look after that.
    pause: u64,
}

/// One of the things that the thread does after a wait.
struct Duty<'a> {
    /// When it is to be done although nothing ends the wait; `None`: never.
    due: fn(&Loop<'a>) -> Option<u64>,
    /// Looks whether there is something to do, and does it.
    tend: fn(&mut Loop<'a>, &Heard) -> Result<(), End>,
}

/// The end of a wait: what was heard, and when.
struct Heard {
    events: Events,
    /// Ns of the monotonic clock.
    now: u64,
}

impl Relief {
    /// Whether to look for relief, which is due then, at `now`; if so, the next look comes later.
    fn next(&mut self, due: Option<Time>, is_awaited: impl FnOnce() -> bool, now: u64) -> bool {
        let Some(Time(due)) = due else {
            *self = Self::default();
            return false;
        };
        if due != self.due {
            *self = Self { due, ..Self::default() };
        }
        let is_now = now >= due.max(self.again);
        if is_now {
            self.pause = if is_awaited() { RELIEF_NS } else { (self.pause * 2).clamp(RELIEF_NS, RELIEF_MOST_NS) };
            self.again = now + self.pause;
        }
        self.at = Some(due.max(self.again));
        is_now
    }
}

impl Retry {
    /// Whether to try now, if something `is_refused`; if so, the next try comes later.
    fn next(&mut self, is_refused: bool, now: u64) -> bool {
        if !is_refused {
            *self = Self::default();
            return false;
        }
        let is_now = is_due(self.at, now);
        if is_now || self.at.is_none() {
            self.pause = (self.pause * 2).clamp(RETRY_NS, RETRY_MOST_NS);
            self.at = Some(now + self.pause);
        }
        is_now
    }
}

impl<'a> Loop<'a> {
    /// All that the thread does, in the order in which it is done.
    ///
    /// - What may end the thread comes first: in a program that has changed itself nothing may be done with the rights of before.
    /// - A heap that is woken is warm for all that follows. So rights are compared at once, and its answer to pressure waits for
    ///   no other process.
    /// - What is at rest for long is released before an answer, which needs to know whether anything is left.
    /// - Pressure is answered before the node balancer works: it raises the marks that the balancer goes by. Relief is looked for
    ///   after both, as they decide whether balance has returned.
    /// - What a limit refused is tried again before clients are served: the channel is opened at the next wait.
    /// - Clients are served when the memory is what they ask about. The end of a window begins a measurement, of which a part is made
    ///   in each turn; so measuring follows.
    /// - Subscribers are told last: of all that the turn has done.
    const DUTIES: [Duty<'a>; 13] = [
        Duty { due: |_| None, tend: Self::end_if_asked },
        Duty { due: |this| this.schedule.count_at, tend: Self::look_for_threads },
        Duty { due: |_| None, tend: Self::leave_rest },
        Duty { due: Self::compare_due, tend: Self::compare_rights },
        Duty { due: |this| this.schedule.rest.ends_at, tend: Self::release_at_rest },
        Duty { due: |_| None, tend: Self::answer_pressure },
        Duty { due: |this| this.schedule.balance_at, tend: Self::balance_zones },
        Duty { due: |this| this.heap.page_pools().due().map(|at| at.0), tend: Self::tend_pools },
        Duty { due: |this| this.schedule.relief.at, tend: Self::look_for_relief },
        Duty { due: |this| this.schedule.retry.at, tend: Self::try_again },
        Duty { due: |this| this.steering.due(), tend: Self::serve_clients },
        Duty { due: |this| this.schedule.window_ends, tend: Self::end_window },
        Duty { due: |this| this.figures.is_under_way().then_some(0), tend: Self::measure_and_tell },
    ];

    /// Runs until there is a reason to end.
    pub fn run(mut self) -> End {
        self.schedule.window_ends = Some(self.next_window());
        self.look_at_counts();
        let mut turn = self.watch_program(false).map(|at| self.schedule.count_at = at);
        loop {
            if let Err(end) = turn {
                return end;
            }
            let heard = self.wait();
            turn = Self::DUTIES.iter().try_for_each(|duty| (duty.tend)(&mut self, &heard));
        }
    }

    /// Waits until something happens or a duty is due.
    fn wait(&mut self) -> Heard {
        let until = Self::DUTIES.iter().filter_map(|duty| (duty.due)(self)).min();
        self.sharing.follow_setting();
        self.steering.follow_setting(self.sources);
        let heat = self.heat();
        AT_WORK.end();
        let events = self.sources.wait(&TUNABLES, heat, until.map(|at| at.saturating_sub(monotonic_ns())));
        AT_WORK.begin();
        Heard { events, now: monotonic_ns() }
    }

    fn end_if_asked(&mut self, _: &Heard) -> Result<(), End> {
        if self.changes.count() != self.change {
            return Err(End::Change);
        }
        if is_wanted() { Ok(()) } else { Err(End::Unwanted) }
    }

    fn look_for_threads(&mut self, heard: &Heard) -> Result<(), End> {
        if heard.events.thread_ended || is_due(self.schedule.count_at, heard.now) {
            self.schedule.count_at = self.watch_program(heard.events.main_thread_ended)?;
        }
        Ok(())
    }

    /// A wake-up ends the rest: a calm window begins. One that is under way ends no later than one that begins now: the settings
    /// may have become shorter.
    fn leave_rest(&mut self, heard: &Heard) -> Result<(), End> {
        if let Some(at) = self.schedule.window_ends {
            self.schedule.window_ends = Some(at.min(self.next_window()));
        } else if heard.events.woken {
            self.schedule.window_ends = Some(self.next_window());
            self.schedule.rest = Rest::default();
            self.schedule.compare_at = 0;
        }
        Ok(())
    }

    fn compare_due(&self) -> Option<u64> {
        (self.has_rights && self.schedule.window_ends.is_some()).then_some(self.schedule.compare_at)
    }

    fn compare_rights(&mut self, heard: &Heard) -> Result<(), End> {
        if is_due(self.compare_due(), heard.now) {
            self.schedule.compare_at = heard.now + COMPARE_NS;
            if self.main_thread.has_changed() {
                return Err(End::Unwanted);
            }
        }
        Ok(())
    }

    /// Releases what calm windows keep, where the heap has been at rest for long and pressure would not be heard.
    fn release_at_rest(&mut self, heard: &Heard) -> Result<(), End> {
        if is_due(self.schedule.rest.ends_at, heard.now) {
            self.schedule.rest.ends_at = None;
            if self.sources.is_deaf() {
                self.heap.reclaim().balance_rest();
                self.schedule.rest.is_empty = true;
            }
        }
        Ok(())
    }

    /// The room comes first: it says what the pressure means.
    fn answer_pressure(&mut self, heard: &Heard) -> Result<(), End> {
        if let Some(room) = self.sources.take_room() {
            self.tell_room(room);
        }
        if heard.events.level > Level::None {
            let is_at_rest = self.schedule.window_ends.is_none();
            respond(self.heap, &heard.events, self.waker, is_at_rest.then_some(&mut self.schedule.rest));
            tell_costs(self.heap);
        }
        Ok(())
    }

    fn tell_room(&mut self, room: Room) {
        let others = self.heap.reclaim().read_room(room);
        self.sources.note_others(room, others);
    }

    /// The node balancer's work, as long as there is some, [`SLICE_NS`] at a time. Before each step the limits are read: what
    /// others take and give back is in no estimate.
    fn balance_zones(&mut self, heard: &Heard) -> Result<(), End> {
        if self.heap.reclaim().wants_reading() {
            self.tell_room(self.sources.measure(&TUNABLES));
        }
        let begin = monotonic_ns();
        if !self.heap.reclaim().is_balancer_asked() && self.schedule.balance_at.is_none_or(|at| begin < at) {
            return Ok(());
        }
        // An answer to pressure in this turn has told them.
        if heard.events.level == Level::None {
            tell_costs(self.heap);
        }
        self.schedule.balance_at = loop {
            self.tell_room(self.sources.measure(&TUNABLES));
            match self.heap.reclaim().balance_zones(&mut self.schedule.turn) {
                Next::Asleep => break None,
                Next::At(Time(at)) => break Some(at),
                Next::Again if monotonic_ns() >= begin + SLICE_NS => break Some(begin),
                Next::Again => {}
            }
        };
        tell_costs(self.heap);
        Ok(())
    }

    fn tend_pools(&mut self, _: &Heard) -> Result<(), End> {
        self.heap.page_pools().tend_due();
        Ok(())
    }

    /// Relief ends what pressure began: it is looked for when it is due, even at rest.
    fn look_for_relief(&mut self, _: &Heard) -> Result<(), End> {
        let now = monotonic_ns();
        let is_awaited = || self.heap.reclaim().is_relief_awaited();
        if self.schedule.relief.next(self.heap.reclaim().relief_due(), is_awaited, now) {
            self.tell_room(self.sources.measure(&TUNABLES));
            self.heap.reclaim().relieve_if_due();
            if self.heap.reclaim().relief_due().is_none() {
                self.schedule.relief = Relief::default();
            }
            if self.heap.reclaim().is_balancer_asked() {
                self.schedule.balance_at.get_or_insert(now);
            }
        }
        Ok(())
    }

    /// A limit that refused the listener or the channel may be another by now. Under a filter that the program set since, no thread
    /// is made, and no file opened. At rest nothing else compares the rights.
    fn try_again(&mut self, heard: &Heard) -> Result<(), End> {
        let is_refused = self.is_listener_refused || self.sources.has_listener() && self.steering.is_refused();
        if self.schedule.retry.next(is_refused, heard.now) {
            if self.has_rights && self.main_thread.has_changed() {
                return Err(End::Unwanted);
            }
            if self.filters.is_none() {
                self.filters = Sandbox::look().ok();
            }
            if self.filters.as_ref().is_none_or(Sandbox::is_programs_own) {
                return Ok(());
            }
            if self.is_listener_refused {
                self.is_listener_refused = !(self.start_listener)(self.sources);
            }
            self.steering.try_again();
        }
        Ok(())
    }

    fn serve_clients(&mut self, heard: &Heard) -> Result<(), End> {
        if heard.events.control || is_due(self.steering.due(), heard.now) {
            self.steering.serve(self.heap, self.waker, &mut self.figures, self.sources);
        }
        Ok(())
    }

    fn end_window(&mut self, _: &Heard) -> Result<(), End> {
        if is_due(self.schedule.window_ends, monotonic_ns()) {
            self.look_for_huge_pages();
            self.look_at_merging();
            self.look_at_counts();
            self.heap.reclaim().collapse_still();
            self.schedule.window_ends = self.heap.reclaim().balance_calm().then(|| self.next_window());
            if self.schedule.window_ends.is_none() {
                self.come_to_rest()?;
            }
            self.figures.window_ended(self.schedule.window_ends.is_none());
        }
        Ok(())
    }

    fn measure_and_tell(&mut self, _: &Heard) -> Result<(), End> {
        self.figures.go_on(self.heap, self.sources);
        self.steering.tell_subscribers(self.waker, self.sources);
        Ok(())
    }

    /// The program may have switched huge pages off for itself since memory began to come in such. Or the machine's mode is another
    /// than it was: memory comes in single pages now, or it may come in huge pages, which are looked for from now on.
    fn look_for_huge_pages(&self) {
        let platform = self.heap.platform();
        let (on_touch, on_advice) = (platform.huge_on_touch(), platform.huge_on_advice());
        let files = self.huge_mode.as_ref().filter(|_| on_touch || !platform.may_have_huge());
        let mode = files.map_or(HugePages::Absent, ModeFiles::mode);
        if on_touch && (mode.ends(on_advice) || has_no_huge_pages(on_advice)) {
            self.heap.reclaim().forget_huge();
        } else if mode == HugePages::Always && !platform.may_have_huge() && !has_no_huge_pages(false) {
            platform.note_huge();
        }
    }

    /// How the kernel merges pages, where they are to be merged.
    fn look_at_merging(&self) {
        let merging = &self.heap.platform().merging;
        if TUNABLES.merge.get() != 0 && self.sources.is_private() { merging.look() } else { merging.forget() }
    }

    /// Whether the system counts what is mapped: a limit may be set at any time.
    fn look_at_counts(&self) {
        if let Some(counts) = &self.counts {
            self.heap.platform().are_mappings_counted.store(counts.are_mappings_counted(), Relaxed);
        }
    }

    /// Nothing moves any more: the thread is about to sleep until it is woken.
    fn come_to_rest(&mut self) -> Result<(), End> {
        if TUNABLES.limit.get() != 0 || self.sources.is_limited() {
            self.heap.reclaim().balance_rest();
            self.schedule.rest.is_empty = true;
        }
        let may_hear = self.sources.is_deaf() && !self.is_empty();
        self.schedule.rest.ends_at = may_hear.then(|| monotonic_ns() + REST_NS);
        // Asleep it compares nothing. If it cannot see the main thread's rights, it must not sleep with rights that the
        // main thread may give up.
        if self.has_rights && (!self.main_thread.is_visible() || self.main_thread.has_changed()) {
            return Err(End::Unwanted);
        }
        Ok(())
    }

    /// Has the end of a thread of the program's wake this one, so that no process stays that has Weir's threads alone. A process
    /// ends with its last thread, and the program's last one may end by `exit(2)`, which ends no other. Returns when to look
    /// again, where the kernel reports no thread's end. `is_main_heard`: the main thread's end was reported.
    fn watch_program(&mut self, is_main_heard: bool) -> Result<Option<u64>, End> {
        match tasks::first_other(self.is_own_thread) {
            // The kernel reports the main thread's end by a descriptor only when all others have ended.
            Ok(Some(thread)) if thread.id == getpid() && self.waker.watch_main_thread() => Ok(None),
            // If it is one of Weir's that has just begun, its end would be waited for in vain.
            Ok(Some(thread))
                if thread.id != getpid() && ((self.are_threads_starting)() || (self.is_own_thread)(thread.id)) =>
            {
                Ok(Some(monotonic_ns() + STARTING_NS))
            }
            Ok(Some(thread)) if thread.id != getpid() && self.sources.watch_thread(thread.id).is_ok() => Ok(None),
            // What would report the thread's end has been cleared by it, but the kernel still lists the thread as it ran.
            Ok(Some(thread)) if tasks::is_ending(thread.listed) => Ok(Some(monotonic_ns() + ENDING_NS)),
            Ok(None) => Err(End::LastThread(self.main_thread.status_at_end())),
            // A jail without `/proc`, or no file can be opened. The program's one thread is the main thread.
            Err(_) if tasks::has_one_thread() && (is_main_heard || tasks::main_thread_left_memory()) => {
                Err(End::LastThread(self.main_thread.status_at_end()))
            }
            Err(_) if tasks::has_one_thread() && self.waker.watch_main_thread() => Ok(None),
            _ => Ok(Some(monotonic_ns() + LAST_THREAD_NS)),
        }
    }

    fn heat(&self) -> Heat {
        if self.schedule.window_ends.is_some() {
            return Heat::Warm;
        }
        if self.is_empty() {
            return Heat::Empty;
        }
        // What counts as resident, but for blocks mapped on their own that are in use.
        let resident = [&STATS.live_bytes, &STATS.idle_bytes, &STATS.fragmented_bytes, &STATS.merged_bytes];
        let resident = resident.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>();
        if self.heap.reclaim().hears_pressure() {
            let caches = self.heap.callbacks().shrinkers(ZoneClass::Normal);
            return heat_of_caches(caches, resident, || self.sources.resident());
        }
        // What cannot notify is not worth reading for a heap that has nothing to release.
        let is_silent = self.schedule.rest.is_empty && self.sources.is_deaf();
        match resident.saturating_sub(self.heap.pages().gauges.mapped_bytes.get()) {
            WORTH_HEARING.. if !is_silent => Heat::Resting,
            _ => Heat::Cold,
        }
    }

    /// Whether a heap at rest has nothing to give. Each pressure event of the machine would wake all processes for nothing, a
    /// thousand of them when it is worst. The next slow path that frees enough to be worth it ends the rest.
    fn is_empty(&self) -> bool {
        let wakes_early = TUNABLES.report_threshold.get() <= WORTH_BYTES;
        wakes_early && STATS.idle_bytes.load(Relaxed) < WORTH_BYTES && !self.heap.reclaim().hears_pressure()
    }

    fn next_window(&self) -> u64 {
        monotonic_ns() + self.heap.reclaim().calm_window().0
    }
}

/// The heat of a heap at rest in a program with so many caches. Blocks mapped on their own may be theirs, and so may memory that
/// another allocator has: what Weir has resident is less than the process has.
fn heat_of_caches(caches: usize, resident: u64, of_process: impl FnOnce() -> Option<u64>) -> Heat {
    let is_worth_it = || resident >= WORTH_HEARING || of_process().is_some_and(|bytes| bytes >= WORTH_HEARING);
    if caches > 0 && is_worth_it() { Heat::Caching } else { Heat::Resting }
}

/// Whether there is a time, and it has come.
fn is_due(at: Option<u64>, now: u64) -> bool {
    at.is_some_and(|at| now >= at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_for_caches_whoever_has_their_memory() {
        let heat = |caches, own, process| heat_of_caches(caches, own, || process);
        assert_eq!(heat(1, WORTH_HEARING, None), Heat::Caching);
        assert_eq!(heat(1, WORTH_HEARING - 1, Some(WORTH_HEARING)), Heat::Caching, "values are another allocator's");
        assert_eq!(heat(1, 0, Some(WORTH_HEARING - 1)), Heat::Resting);
        assert_eq!(heat(1, 0, None), Heat::Resting);
        assert_eq!(heat(0, WORTH_HEARING, Some(WORTH_HEARING)), Heat::Resting);
        heat_of_caches(1, WORTH_HEARING, || unreachable!("no file is read for what is known"));
    }

    #[test]
    fn what_a_limit_refused_is_tried_again_ever_more_seldom() {
        let mut retry = Retry::default();
        assert!(!retry.next(false, 5) && retry.at.is_none());
        assert!(!retry.next(true, 5) && retry.at == Some(5 + RETRY_NS));
        assert!(!retry.next(true, RETRY_NS), "it is not due");
        let mut pauses = std::vec::Vec::new();
        for _ in 0..11 {
            let now = retry.at.unwrap();
            assert!(retry.next(true, now));
            pauses.push((retry.at.unwrap() - now) / RETRY_NS);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 360, 360, 360]);
        assert!(!retry.next(false, retry.at.unwrap()) && retry.at.is_none());
        assert!(!retry.next(true, 7) && retry.at == Some(7 + RETRY_NS));
    }

    #[test]
    fn relief_is_looked_for_when_it_is_due_and_ever_more_seldom_where_nobody_waits_for_it() {
        let second = |n: u64| n * RELIEF_NS;
        let looks = |is_awaited: bool| {
            let mut relief = Relief::default();
            let mut at = second(1);
            let mut looks = std::vec::Vec::new();
            while looks.len() < 14 {
                if relief.next(Some(Time(second(2))), || is_awaited, at) {
                    looks.push(at / RELIEF_NS);
                }
                assert!(relief.at.unwrap() > at, "the thread sleeps until then");
                at = relief.at.unwrap();
            }
            looks
        };
        assert_eq!(looks(true), std::vec::Vec::from_iter(2..16));
        assert_eq!(looks(false), [2, 3, 5, 9, 17, 33, 65, 125, 185, 245, 305, 365, 425, 485]);
        // Another event, or another `relief_ms`: it is due at another time.
        let mut relief = Relief::default();
        assert!((0..5).all(|_| relief.next(Some(Time(0)), || false, relief.at.unwrap_or(0))));
        assert!(!relief.next(Some(Time(second(90))), || false, second(40)));
        assert_eq!((relief.at, relief.pause), (Some(second(90)), 0));
        assert!(relief.next(Some(Time(second(50))), || false, second(50)) && relief.at == Some(second(51)));
        assert!(!relief.next(None, || unreachable!(), second(60)) && relief.at.is_none());
    }
}
