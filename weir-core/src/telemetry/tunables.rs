//! Every parameter of Weir, in one table: name, default, range, unit, meaning, and where the default is from.
//!
//! A parameter is read on slow paths by one relaxed load and may be set at any time while the process runs;
//! the next decision uses the new value. Documents and the command line are made from [`TABLE`].

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One parameter, as the documents and the command line show it.
#[derive(Debug, Clone, Copy)]
pub struct Tunable {
    /// Name; also the environment variable `WEIR_` + the name in capitals.
    pub name: &'static str,
    /// Value at start.
    pub default: u64,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// Unit of the value (`ms`, `bytes`, `count`, `bool`, ...).
    pub unit: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
}

macro_rules! tunables {
    ($($name:ident = $default:expr, $min:expr, $max:expr, $unit:literal, $what:literal, $source:literal;)*) => {
        /// The values, one atomic each.
        #[derive(Debug)]
        pub struct Tunables { $(#[doc = $what] pub $name: Value,)* }
        /// The table that documents and commands are made from, in the order of [`Tunables::values`].
        pub const TABLE: &[Tunable] = &[$(Tunable {
            name: stringify!($name), default: $default, min: $min, max: $max,
            unit: $unit, what: $what, source: $source,
        },)*];
        impl Tunables {
            /// All parameters at their defaults.
            #[allow(clippy::new_without_default, reason = "const, and only ever a static or a field")]
            pub const fn new() -> Self { Self { $($name: Value(AtomicU64::new($default)),)* } }
            /// The values in the order of [`TABLE`].
            pub fn values(&self) -> [&Value; TABLE.len()] { [$(&self.$name,)*] }
        }
    };
}

tunables! {
    limit = 0, 0, u64::MAX, "bytes",
        "Resident bytes that the process should stay under; idle memory is given back to stay there, memory in use is never refused. 0: no limit.",
        "user";
    background = 1, 0, 2, "mode",
        "1: run one background thread (and, on a machine of several NUMA nodes, a worker a node while memory is short). 0: none; the program's own slow paths end calm windows, by memory calls alone: no file is opened, pressure and limits are not heard. 2: none; slow paths also read limits and stalls, from files.",
        "choice: one thread hears pressure and ends calm windows; 0 is for programs under a seccomp filter of their own";
    background_start = 4 << 20, 0, u64::MAX, "bytes",
        "Heap size at which the background thread starts.",
        "measured: short commands never reach it";
    idle_ms = 300, 10, 3_600_000, "ms",
        "Window over which the working set's peak is taken; free memory above the peak goes back when it closes.",
        "choice: idle memory is gone within about a second; free page reporting in Linux waits 2 s";
    report_batch = 16, 1, 16, "pageblocks",
        "Pageblocks isolated at a time by a report.",
        "Linux page hinting, v10 (June 2019): 16 isolated pages";
    report = 1, 0, 1, "bool",
        "Give free memory back at all. Switched off, the batch under way still ends.",
        "virtio-balloon: free-page-reporting=on";
    report_threshold = 256 << 10, 0, u64::MAX, "bytes",
        "Memory freed since nothing was left to do, above which the background thread is woken to give it back. Pressure wakes it at once.",
        "Linux page hinting, v10: a worker starts when a threshold of free memory is met; the amount is a choice, 64 pages";
    report_lazily = 0, 0, 1, "bool",
        "Give memory back by MADV_FREE where there is no pressure: it costs less, but the resident set falls only once the kernel needs the memory.",
        "Linux page hinting, v10, leaves it open; measured: DESIGN.md, Reporting";
    refault_ms = 10_000, 0, 3_600_000, "ms",
        "Memory touched again within this time of being given back counts as given back too early.",
        "choice; measured: DESIGN.md, the refault meter";
    refault_percent = 10, 0, 100, "percent",
        "Share of the memory given back in calm times that may be touched again early; above it the window idle_ms is doubled, up to refault_ms. 100: never.",
        "choice; measured: DESIGN.md, the refault meter";
    sparse_percent = 25, 0, 100, "percent",
        "Share of a huge page up to which it counts as in little use where huge pages are always on: for sparse_ms, and it is split and what is free of it given back. 0: never in calm times.",
        "measured: E8 with huge pages always (DESIGN.md, Reporting)";
    sparse_ms = 3_000, 100, 3_600_000, "ms",
        "Time for which a huge page must be in little use, with no page of it handed out or freed, before calm windows split it; at most twice that in a program at rest, ten times in a busy one.",
        "choice: idle memory is gone within 10 s, and a pause of a second between two bursts costs no huge page";
    huge_blocks = 1, 0, 1, "bool",
        "Ask for huge pages behind blocks of more than 4 MiB, while the program fills such blocks.",
        "measured: malloc-large of E9 takes a fifth of the time";
    severe_interval_ms = 1000, 0, 3_600_000, "ms",
        "Shortest time between two drains of all CPUs' buckets.",
        "FreeBSD, self-tuning UMA (2012): its worker sleeps at least 1 s";
    bucket_visits = 16, 1, 1_000_000, "count",
        "Visits to a cache's depot within idle_ms at which its CPUs' buckets double; one that finds the depot's lock held counts for four.",
        "FreeBSD, self-tuning UMA: buckets grow on contention; measured: E9 loses nothing to larger ones from the start";
    cache_idle_windows = 8, 1, 1_000_000, "count",
        "Windows of idle_ms without a free to a cache or a visit to its depot, after which what CPUs hold of it is taken back.",
        "FreeBSD, UMA's voluntary trim of caches without a miss, which waits 45 periods; fewer, as ours are shorter";
    psi_some_us = 70_000, 1_000, 10_000_000, "us",
        "Stall time within psi_window_us that counts as pressure.",
        "Android's lmkd, partial stall 70 ms; GLib's GMemoryMonitor 70 ms";
    psi_full_us = 100_000, 1_000, 10_000_000, "us",
        "Stall time of all tasks within psi_window_us that counts as severe pressure.",
        "GLib's GMemoryMonitor, full stall 100 ms";
    psi_window_us = 1_000_000, 100_000, 10_000_000, "us",
        "PSI window; 2 s multiples are used where privilege is missing.",
        "Linux, accounting/psi: windows of 0.5 to 10 s, of whole 2 s without privilege";
    headroom_percent = 5, 0, 50, "percent",
        "Headroom below a cgroup's limit at which pressure begins; half of it is severe.",
        "CacheLib's memory monitor: two marks below the limit; the share is a choice";
    abort_on_misuse = 1, 0, 1, "bool",
        "Abort on a double or invalid free. 0: say so and ignore the call.",
        "choice: glibc and Scudo abort too";
}

/// A parameter's current value.
#[derive(Debug)]
pub struct Value(AtomicU64);

impl Value {
    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    /// Sets the value; the caller has checked the range.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

/// Why a parameter could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetError {
    /// No parameter has that name.
    Unknown,
    /// The value is not a number (with an optional K, M, G or T).
    NotANumber,
    /// The value is outside the range that [`TABLE`] gives.
    OutOfRange,
}

impl Tunables {
    /// Sets a parameter by name from text such as `16`, `64M` or `1G`.
    ///
    /// ```
    /// let t = weir_core::telemetry::tunables::Tunables::new();
    /// t.set(b"limit", b"64M").unwrap();
    /// assert_eq!(t.limit.get(), 64 << 20);
    /// ```
    pub fn set(&self, name: &[u8], text: &[u8]) -> Result<(), SetError> {
        let at = TABLE.iter().position(|t| t.name.as_bytes() == name).ok_or(SetError::Unknown)?;
        let value = parse_size(text).ok_or(SetError::NotANumber)?;
        if !(TABLE[at].min..=TABLE[at].max).contains(&value) {
            return Err(SetError::OutOfRange);
        }
        self.values()[at].set(value);
        Ok(())
    }
}

/// A number with an optional binary suffix K, M, G or T (either case, an `iB` or `B` after it allowed).
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let mut value: u64 = 0;
    for &b in &text[..digits] {
        value = value.checked_mul(10)?.checked_add(u64::from(b - b'0'))?;
    }
    let shift = match &text[digits..].to_ascii_upper() {
        [0, ..] => 0,
        [b'B', 0, ..] => 0,
        [unit, 0, _] | [unit, b'B', 0] | [unit, b'I', b'B'] => match unit {
            b'K' => 10,
            b'M' => 20,
            b'G' => 30,
            b'T' => 40,
            _ => return None,
        },
        _ => return None,
    };
    value.checked_mul(1 << shift)
}

/// Upper-cases up to three bytes of a suffix into a fixed array (no allocation here); longer text never matches.
trait UpperSuffix {
    fn to_ascii_upper(&self) -> [u8; 3];
}

impl UpperSuffix for [u8] {
    fn to_ascii_upper(&self) -> [u8; 3] {
        let mut out = [0u8; 3];
        if self.len() > 3 {
            return [b'?'; 3];
        }
        for (to, from) in out.iter_mut().zip(self) {
            *to = from.to_ascii_uppercase();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size(b"16"), Some(16));
        assert_eq!(parse_size(b"16k"), Some(16 << 10));
        assert_eq!(parse_size(b"1GiB"), Some(1 << 30));
        assert_eq!(parse_size(b"2mb"), Some(2 << 20));
        assert_eq!(parse_size(b""), None);
        assert_eq!(parse_size(b"G"), None);
        assert_eq!(parse_size(b"1Gx"), None);
        assert_eq!(parse_size(b"99999999999999999999"), None);
        assert_eq!(parse_size(b"99999999999T"), None);
    }

    #[test]
    fn set_refuses_what_the_table_refuses() {
        let t = Tunables::new();
        assert_eq!(t.set(b"no_such", b"1"), Err(SetError::Unknown));
        assert_eq!(t.set(b"report", b"2"), Err(SetError::OutOfRange));
        assert_eq!(t.set(b"report", b"x"), Err(SetError::NotANumber));
        t.set(b"report", b"0").unwrap();
        assert_eq!(t.report.get(), 0);
    }
}
