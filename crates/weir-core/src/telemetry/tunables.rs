//! Every setting of Weir, in one table: name, default, range, unit, meaning and source of the default. The table also
//! says what is done beyond storing the value when it is set.
//!
//! A setting is read on slow paths by one relaxed load. Any setting may be set at any time while the process runs. The
//! next decision uses the new value, unless the setting is of [`Effect::AtStart`]. Documents, the command line, the Rust
//! API and `weir_ctl` are made from [`TABLE`].

use crate::base::time::Nanos;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod setting;
mod setting_error;

pub use setting::{Effect, Setting, Unit, effect, parse_size};
pub use setting_error::{SettingError, SettingErrorKind};

macro_rules! tunables {
    ($($name:ident = $default:expr, $min:expr, $max:expr, $unit:ident $(=> $effect:expr)?,
        $what:literal, $source:literal;)*) => {
        /// The values, one atomic each.
        #[derive(Debug)]
        pub struct Tunables { $(#[doc = $what] pub $name: Value,)* }
        /// The table that documents and commands are made from, in the order of [`Tunables::values`].
        pub const TABLE: &[Setting] = &[$(Setting {
            name: stringify!($name), default: $default, min: $min, max: $max, unit: Unit::$unit, what: $what,
            source: $source, effect: tunables!(@effect $($effect)?),
        },)*];
        impl Tunables {
            /// All settings at their defaults.
            #[allow(clippy::new_without_default, reason = "const, and only ever a static or a field")]
            pub const fn new() -> Self { Self { $($name: Value(AtomicU64::new($default)),)* } }
            /// The values in the order of [`TABLE`].
            pub fn values(&self) -> [&Value; TABLE.len()] { [$(&self.$name,)*] }
        }
    };
    (@effect) => { Effect::Wake };
    (@effect $effect:expr) => { $effect };
}

tunables! {
    limit = 0, 0, u64::MAX, Bytes,
        "Resident bytes that the process should stay under; idle memory is released to stay there, memory in use is never refused. 0: no limit.",
        "user";
    hard_limit = 0, 0, u64::MAX, Bytes,
        "Bytes that the heap and zones of the program's own may hold: what is handed out, what is kept free and resident, and metadata. An allocation beyond it reclaims, then fails with ENOMEM. 0: no limit.",
        "user";
    background = 1, 0, 1, Switch,
        "1: run one background thread (and, in a process of several zones, a worker for each further one while memory is short). 0: none; the program's own slow paths end calm windows, by memory calls alone: no file is opened, pressure and limits are not heard.",
        "choice: one thread hears pressure and ends calm windows; 0 is for programs under a seccomp filter of their own";
    publish = 1, 0, 1, Switch,
        "Let the same user and root read the process's figures from outside (`weir stat`): the background thread keeps them on a page that can be mapped through /proc. 0: they stay private.",
        "choice: it costs the program nothing, and whoever may read the page may read all of the process's memory";
    control = 1, 0, 1, Switch,
        "Let the same user and root steer the process from outside (`weir ctl`): the background thread listens on a Unix socket. 0: no socket.",
        "choice: whoever may steer it may also look into it: the page of figures holds the token that a client sends first";
    background_start = 4 << 20, 0, u64::MAX, Bytes,
        "Heap size at which the background thread starts.",
        "measured: short commands never reach it";
    idle_ms = 300, 10, 3_600_000, Milliseconds,
        "Window over which the working set's peak is taken; free memory above the peak is released when it closes. Where a program comes back for it, the peak is taken over up to four of them (hold_ms).",
        "choice: idle memory is gone within about a second; free page reporting in Linux waits 2 s";
    report_batch = 16, 1, 16, Pageblocks,
        "Pageblocks isolated at a time by a report.",
        "Linux page hinting, v10 (June 2019): 16 isolated pages";
    report = 1, 0, 1, Switch => Effect::Reporting,
        "Release free memory at all. When the call that switches it off returns, the batch in flight has ended.",
        "virtio-balloon: free-page-reporting=on";
    report_threshold = 256 << 10, 0, u64::MAX, Bytes,
        "Memory freed since nothing was left to do, above which the background thread is woken to release it. Pressure wakes it at once.",
        "Linux page hinting, v10: a worker starts when a threshold of free memory is met; the amount is a choice, 64 pages";
    report_lazily = 0, 0, 1, Switch,
        "Release memory by MADV_FREE where there is no pressure: it costs less. The resident set falls only once the kernel needs the memory, under pressure, or by a trim.",
        "Linux page hinting, v10, leaves it open; measured: docs/design/reclaim.md";
    refault_ms = 10_000, 0, 3_600_000, Milliseconds,
        "Memory touched again within this time of its release counts as touched again; after twice so long without harm, four times after a second doubling, idle memory is kept for half as long (refault_percent).",
        "choice; measured: docs/design/reclaim.md, the refault meter";
    refault_percent = 10, 0, 100, Percent,
        "Share of the memory released in calm times that may be touched again soon after; above it idle memory is kept for twice as long, up to hold_ms. 100: never.",
        "choice; measured: docs/design/reclaim.md, the refault meter";
    hold_ms = 2_000, 0, 3_600_000, Milliseconds,
        "Time after its last use in which idle memory is gone in any case, where the program comes back for it again and again and it is kept for longer than idle_ms. Who comes back more rarely than after three fifths of it pays page faults each time.",
        "choice: who frees memory and rests sees it gone after two seconds; pauses of a second between bursts cost nothing";
    sparse_percent = 25, 0, 100, Percent,
        "Share of a huge page up to which it counts as in little use where huge pages are always on: for sparse_ms, and it is split and what is free of it released. 0: never in calm times.",
        "measured: E8 with huge pages always (docs/design/reclaim.md)";
    sparse_ms = 3_000, 100, 3_600_000, Milliseconds,
        "Time for which a huge page must be in little use, with no page of it handed out or freed, before calm windows split it; at most twice that in a program at rest, ten times in a busy one.",
        "choice: idle memory is gone within 10 s, and a pause of a second between two bursts costs no huge page";
    merge = 0, 0, 2, Mode,
        "1: make pages of small objects that have few objects left equal, at rest and under severe pressure, so that the kernel's same-page merging has one page behind several (needs /sys/kernel/mm/ksm/run to be 1; what is resident stays, what is charged falls). Pages that the process's own random words keep apart from those of other processes. 2: also pages that have no room for such words, as those of 2 KiB objects. 0: none; what was merged gets memory of its own again.",
        "choice: off, as the kernel's merging is, and a write to a merged page costs a copy (docs/design/merged-pages.md)";
    merge_windows = 3, 1, 1_000_000, Count,
        "Quiet windows of idle_ms in which nothing of a slab has changed, after which its pages are merged.",
        "choice: memory of a program at rest is merged within three seconds, and none of a program between two bursts";
    huge_heap = 0, 0, 1, Switch => Effect::HugeHeap,
        "Ask for huge pages behind the heap where the system gives them to those who ask (`madvise`): a large heap is filled in a quarter to half of the time, and walks over it are a third faster; what is left of a peak goes back later, some seconds instead of one. Without effect where they are `always` or `never`.",
        "choice: `madvise` is the setting of those who want huge pages where a program asks for them (docs/design/reclaim.md, Which blocks get huge pages)";
    huge_blocks = 1, 0, 1, Switch,
        "Ask for huge pages, under `madvise`, behind memory that the program fills: blocks of more than 4 MiB, while it fills such blocks, what a heap of 32 MiB or more grows by, while it grows dense, and what of it is full and still.",
        "measured: malloc-large of E9 takes a fifth of the time; docs/design/reclaim.md, A heap that grows dense, What is full and still";
    severe_interval_ms = 1000, 0, 3_600_000, Milliseconds,
        "Shortest time between two drains of all CPUs' buckets.",
        "FreeBSD, self-tuning UMA (2012): its worker sleeps at least 1 s";
    bucket_visits = 16, 1, 1_000_000, Count,
        "Visits to a cache's depot within idle_ms at which its CPUs' buckets double; one that finds the depot's lock held counts for four.",
        "FreeBSD, self-tuning UMA: buckets grow on contention; measured: E9 loses nothing to larger ones from the start";
    cache_idle_windows = 8, 1, 1_000_000, Count,
        "Windows of idle_ms without a free to a cache or a visit to its depot, after which what CPUs hold of it is taken back.",
        "FreeBSD, UMA's voluntary trim of caches without a miss, which waits 45 periods; fewer, as ours are shorter";
    psi_some_us = 70_000, 1_000, 10_000_000, Microseconds,
        "Stall time within psi_window_us that counts as pressure.",
        "Android's lmkd, partial stall 70 ms; GLib's GMemoryMonitor 70 ms";
    psi_full_us = 100_000, 1_000, 10_000_000, Microseconds,
        "Stall time of all tasks within psi_window_us that counts as severe pressure.",
        "GLib's GMemoryMonitor, full stall 100 ms";
    psi_window_us = 1_000_000, 100_000, 10_000_000, Microseconds,
        "PSI window; 2 s multiples are used where privilege is missing.",
        "Linux, accounting/psi: windows of 0.5 to 10 s, of whole 2 s without privilege";
    headroom_percent = 5, 0, 50, Percent => Effect::Rearm,
        "Headroom below a cgroup's limit at which pressure begins, as a share of the limit (of 40 GiB where that is more); half of it is severe.",
        "CacheLib's memory monitor: two marks below the limit; the share is a choice";
    watermark_scale = 250, 1, 1000, Count,
        "Least distance between two watermarks of a zone, in ten-thousandths of the zone. Below low the balancer reclaims what caches of the program's hold, until high; above high they may grow. 250 becomes 500 with the first cache of values that another allocator has.",
        "Linux, watermark_scale_factor, in the same unit; there 10. More here: a limit is read every 250 ms, and what a neighbour takes in that time must fit below it";
    balance_policy = 0, 0, 2, Mode,
        "When the zones of a node count as balanced for blocks of several pages. 0: when one suitable zone is. 1: when all are. 2: when those are that make up a quarter of the pages.",
        "Linux: 0 today and in the patch of 2010, 1 before, 2 in 2.6.38";
    relief_ms = 2_000, 0, 3_600_000, Milliseconds,
        "Time after the last pressure event before there is relief, and caches of the program's may grow again; over it the watermarks that pressure raised fall back.",
        "Linux, accounting/psi: the window of an unprivileged trigger, 2 s: no event in it means no pressure";
    callback_ms = 50, 1, 60_000, Milliseconds,
        "How long the answer to memory pressure waits for a program's own shrinkers. One that takes longer goes on beside it, and is not called again before it returns; others are served meanwhile. At the hard limit, how long an allocation waits for another thread's callback.",
        "choice: most caches drop some megabytes in less, and pressure is answered within a tenth of a second";
    reclaim_cpu_percent = 25, 1, 100, Percent,
        "Share of a CPU that the balancer takes to reclaim what is in use by caches of the program's. Not kept to under severe pressure.",
        "choice: the share that Go gives its garbage collector";
    max_idle_pages = 1_024, 0, u32::MAX as u64, Pages,
        "Idle pages that a page pool keeps for its next requests, unless the pool has a limit of its own. What is above goes back when its requests are done, or 100 ms later. 0: none.",
        "Linux, xen-blkback: max_buffer_pages";
    squeeze_ms = 10, 0, 3_600_000, Milliseconds,
        "Time after a pressure event in which a page pool keeps nothing idle, unless the pool has a time of its own; each event extends it. 0: pools are not squeezed.",
        "Linux, xen-blkback: buffer_squeeze_duration_ms, the least that worked about as well as ten times as much";
    profile_bytes = 0, 0, 1 << 40, Bytes => Effect::Profile,
        "Mean of the bytes that the program allocates between two samples of the heap profile, whose call stacks are kept; recommended: 512K. A thread follows a new value from its next sample on. 0: no samples.",
        "gperftools: tcmalloc's sampling parameter of 512 KiB";
    profile_percent = 1, 0, 100, Percent,
        "Share of the program's processor time that samples of the heap profile may take, after the first millisecond of them: where they would take more they are farther apart, up to 256 times `profile_bytes`. 0: all of it.",
        "choice: with what counting costs, a program loses 2 % at most";
    guard_every = 0, 0, 1 << 31, Count => Effect::Guard,
        "Guard one allocation in so many, of those of at most 4 KiB: it gets a page of its own between two that cannot be touched, and a write past it, or a use after its free, is named with the stacks of its allocation and its free; recommended: 5000. 0: none.",
        "GWP-ASan: one in 5000 where it is on by default";
    check = 0, 0, 1, Switch => Effect::Check,
        "Check every free: no CPU keeps buckets, each block goes back to its slab at once, and a double free, a pointer into a block and a misaligned one are named where they happen. Not found: a block that was freed, and handed out again, before it is freed a second time. A small allocation and its free take ten times as long, and 3 us where it is the only block of its size.",
        "choice: what the checks that cost nothing miss waits in CPUs' buckets";
    abort_on_misuse = 1, 0, 1, Switch,
        "Abort on a double or invalid free. 0: print the message and ignore the call.",
        "choice: glibc and Scudo abort too";
    zone_cpus = 16, 1, 65_536, Count => Effect::AtStart,
        "Threads that run at once and share a zone of free pages, and depots. A process whose threads have numbers above that has several of both, so that these do not wait for one lock; Linux numbers threads densely (mm_cid) since 6.3, and on kernels before there is one. How many there are is counted once, at the start: a value that is set later changes nothing.",
        "choice by simulation: docs/results/threads.md, Many CPUs";
    rseq = 1, 0, 1, Switch,
        "Where libc does not register threads for restartable sequences (musl, glibc before 2.35), have each do it at its first allocation: a call takes a few nanoseconds then. 0: threads that start from now on do not, and each of their calls takes a slow path: for a program that registers by itself, or whose own filter kills at `rseq`.",
        "Linux: a thread has one area at most. A glibc that is told not to register (glibc.pthread.rseq=0) is followed in any case";
    deepbind = 0, 0, 1, Switch,
        "Leave RTLD_DEEPBIND to `dlopen` as the program says it. A library that is opened so takes `malloc` and `free` from libc, not from Weir: the first block that passes between it and the program ends the process. 0: the bit is cleared. For `libweir.so` only.",
        "choice: PHP opens its extensions so, and a program that needs the bit is not known, and one that passes blocks dies with it";
}

/// A setting's current value.
#[derive(Debug)]
pub struct Value(AtomicU64);

impl Value {
    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// The time that a setting in milliseconds says.
    #[inline]
    pub fn ns(&self) -> Nanos {
        Nanos::of_ms(self.get())
    }

    /// Sets the value; the caller has checked the range.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

impl Tunables {
    /// The current value of the setting `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Result<u64, SettingError> {
        let name = name.as_ref();
        let at = find(name).ok_or_else(|| SettingError::unknown(name))?;
        Ok(self.values()[at].get())
    }

    /// Sets a setting by name from text such as `16`, `64M` or `1G`; returns its entry: its [`Effect`] is for the
    /// caller to carry out.
    ///
    /// ```
    /// let t = weir_core::telemetry::tunables::Tunables::new();
    /// t.set("limit", "64M").unwrap();
    /// assert_eq!(t.limit.get(), 64 << 20);
    /// let error = t.set("limit", "12X").unwrap_err();
    /// assert_eq!(error.to_string(), "limit=12X: not a size (such as 64M); 0 or more bytes");
    /// ```
    pub fn set(&self, name: impl AsRef<[u8]>, text: impl AsRef<[u8]>) -> Result<&'static Setting, SettingError> {
        let (name, text) = (name.as_ref(), text.as_ref());
        let at = find(name).ok_or_else(|| SettingError::unknown(name))?;
        let setting = &TABLE[at];
        let value = setting.parse(text).ok_or_else(|| SettingError::not_a_number(setting, text))?;
        self.store(at, value).ok_or_else(|| SettingError::out_of_range(setting, text))
    }

    /// Sets a setting by name to `value`, in its unit; otherwise as [`Tunables::set`].
    pub fn set_number(&self, name: impl AsRef<[u8]>, value: u64) -> Result<&'static Setting, SettingError> {
        let name = name.as_ref();
        let at = find(name).ok_or_else(|| SettingError::unknown(name))?;
        self.store(at, value).ok_or_else(|| SettingError::number_out_of_range(&TABLE[at], value))
    }

    fn store(&self, at: usize, value: u64) -> Option<&'static Setting> {
        let setting = &TABLE[at];
        (setting.min..=setting.max).contains(&value).then(|| {
            self.values()[at].set(value);
            setting
        })
    }
}

/// Where in [`TABLE`] the setting of a name is.
fn find(name: &[u8]) -> Option<usize> {
    TABLE.iter().position(|setting| setting.name.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_refuses_what_the_table_refuses() {
        let t = Tunables::new();
        let kind = |name: &str, text: &str| t.set(name, text).unwrap_err().kind();
        assert_eq!(kind("no_such", "1"), SettingErrorKind::Unknown);
        assert_eq!(kind("report", "2"), SettingErrorKind::OutOfRange);
        assert_eq!(kind("report", "x"), SettingErrorKind::NotANumber);
        assert_eq!(kind("idle_ms", "1K"), SettingErrorKind::NotANumber);
        assert_eq!(t.set_number("report", 2).unwrap_err().kind(), SettingErrorKind::OutOfRange);
        assert_eq!(t.get("no_such").unwrap_err().kind(), SettingErrorKind::Unknown);
        assert_eq!(t.report.get(), 1);
        t.set("report", "0").unwrap();
        assert_eq!((t.report.get(), t.get("report")), (0, Ok(0)));
        t.set_number("report", 1).unwrap();
        assert_eq!(t.report.get(), 1);
    }

    #[test]
    fn every_setting_can_be_set_to_both_ends_of_its_range_and_not_beyond() {
        let t = Tunables::new();
        for (setting, value) in TABLE.iter().zip(t.values()) {
            assert_eq!(value.get(), setting.default);
            for end in [setting.min, setting.max] {
                assert_eq!(t.set(setting.name, end.to_string()).unwrap().name, setting.name);
                assert_eq!(t.get(setting.name), Ok(end));
            }
            if let Some(beyond) = setting.max.checked_add(1) {
                assert!(
                    t.set(setting.name, beyond.to_string()).is_err() && t.set_number(setting.name, beyond).is_err()
                );
            }
            if let Some(beyond) = setting.min.checked_sub(1) {
                assert!(t.set(setting.name, beyond.to_string()).is_err());
            }
            assert_eq!(t.get(setting.name), Ok(setting.max));
        }
    }
}
