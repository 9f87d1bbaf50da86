//! Calm windows: how long they are, how quiet the program is, and when caches may be emptied again. The file also says
//! over how many windows the refault meter has idle memory kept.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use crate::base::cause::Cause;
use crate::base::time::{Nanos, Time};
use crate::platform::lock::{Lock, RankTurn};
use crate::platform::{Clock, Diagnostics, Wait, rank};
use crate::policy::hold::Hold;
use crate::policy::refault::Patience;

/// Calm windows without any progress after which the balancer sleeps until something is freed again.
pub const IDLE_WINDOWS: u32 = 3;

/// See the module.
pub struct Windows {
    /// Goals begun.
    turns: AtomicU32,
    /// Activity seen at the last window's end.
    seen: AtomicU64,
    quiet_windows: AtomicU32,
    /// When the next window ends, where slow paths end it.
    next_window: AtomicU64,
    last_drain: AtomicU64,
    patience: Lock<Patience, { rank::PATIENCE }>,
    /// Calm reports and their refaults that were taken in, bytes.
    taken_in: [AtomicU64; 2],
    /// Doublings of the time for which idle memory is kept.
    doublings: AtomicU32,
}

impl Windows {
    /// At rest.
    pub(crate) const fn new() -> Self {
        Self {
            turns: AtomicU32::new(0),
            seen: AtomicU64::new(0),
            quiet_windows: AtomicU32::new(0),
            next_window: AtomicU64::new(0),
            last_drain: AtomicU64::new(0),
            patience: Lock::new(Patience::new()),
            taken_in: [const { AtomicU64::new(0) }; 2],
            doublings: AtomicU32::new(0),
        }
    }

    /// The number of the next goal.
    pub(crate) fn next_turn(&self) -> usize {
        self.turns.fetch_add(1, Relaxed) as usize
    }

    /// Length of a calm window now, ns.
    pub(crate) fn window<P: Diagnostics>(&self, platform: &P) -> Nanos {
        self.hold(platform).window_ns
    }

    /// Whether idle memory is kept for longer than `idle_ms`, as the program came back for what had been released.
    pub(crate) fn is_patient(&self) -> bool {
        self.doublings.load(Relaxed) > 0
    }

    /// For how long idle memory is kept now. The settings may have become shorter since the last doubling.
    pub(crate) fn hold<P: Diagnostics>(&self, platform: &P) -> Hold {
        let [idle, longest] = [&platform.tunables().idle_ms, &platform.tunables().hold_ms].map(|time| time.ns());
        let doublings = match self.doublings.load(Relaxed) {
            0 => 0,
            doublings => doublings.min(Hold::most_doublings(idle, longest)),
        };
        Hold::of(doublings, idle)
    }

    /// Whether the window is over at `now`, where slow paths end it; then the next begins, for one caller. It is over as well if
    /// one that begins now would end long before it: the settings have become shorter. Not if it would end a little before: a
    /// thread that read its clock before another began the window must not end it.
    pub(crate) fn is_window_over<P: Diagnostics>(&self, platform: &P, now: Time) -> bool {
        let due = self.next_window.load(Relaxed);
        let window = self.window(platform);
        let next = now + window;
        let is_over = now >= Time(due) || Time(due).since(next) > window;
        is_over && self.next_window.compare_exchange(due, next.0, Acquire, Relaxed).is_ok()
    }

    /// A window ends with `activity` in all: whether there was none in it, and how many such there were in a row before.
    pub(crate) fn end_window(&self, activity: u64) -> (bool, u32) {
        let quiet = self.seen.swap(activity, Relaxed) == activity;
        let before = self.quiet_windows.load(Relaxed);
        self.quiet_windows.store(if quiet { before.saturating_add(1) } else { 0 }, Relaxed);
        (quiet, before)
    }

    /// Quiet windows in a row.
    pub(crate) fn quiet_windows(&self) -> u32 {
        self.quiet_windows.load(Relaxed)
    }

    /// Whether caches may be emptied at `now`: once in `severe_interval_ms`, as that costs a program its caches.
    pub(crate) fn may_empty_caches<P: Diagnostics>(&self, platform: &P, now: Time) -> bool {
        let last = self.last_drain.load(Relaxed);
        let may = last == 0 || now >= Time(last) + platform.tunables().severe_interval_ms.ns();
        if may {
            self.last_drain.store(now.0, Relaxed);
        }
        may
    }

    /// Takes in how much of what calm windows released was touched again, and sets for how long the next ones keep it.
    pub(crate) fn learn<P: Diagnostics + Clock + Wait>(&self, platform: &P) {
        let (stats, tunables) = (platform.stats(), platform.tunables());
        let since = |i: usize, total: &AtomicU64| {
            let now = total.load(Relaxed);
            // A fork's child begins its totals anew.
            now.saturating_sub(self.taken_in[i].swap(now, Relaxed))
        };
        let news = (since(0, &stats.given_back[Cause::Idle as usize]), since(1, &stats.calm_refault_bytes));
        let now = platform.now();
        let mut patience = self.patience.lock(platform);
        patience.update(now, news, tunables.refault_percent.get(), tunables.refault_ms.ns());
        patience.cap(Hold::most_doublings(tunables.idle_ms.ns(), tunables.hold_ms.ns()));
        let doublings = patience.level();
        drop(patience);
        self.doublings.store(doublings, Relaxed);
        stats.patience.store(doublings.into(), Relaxed);
    }

    /// Passes its lock to the turn of a rank.
    pub(crate) fn freeze<P: Wait>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.patience);
    }
}
