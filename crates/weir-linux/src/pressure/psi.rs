//! Pressure stall information: triggers where they may be armed, and readings where not.

use crate::os::fd;
use crate::os::file::text::{number, words};
use crate::os::syscall::{Errno, Result};
use arrayvec::ArrayString;
use core::fmt::Write;

/// The kernel serves unprivileged triggers only in windows that are multiples of this.
const UNPRIVILEGED_WINDOW_US: u64 = 2_000_000;
/// Longest window that the kernel takes.
const MAX_WINDOW_US: u64 = 10_000_000;

/// Which stalls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// At least one task waited for memory.
    Some,
    /// All tasks that could run waited.
    Full,
}

/// Stall time within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Which stalls.
    pub kind: Kind,
    /// Stall time, us.
    pub stall_us: u64,
    /// Window, us.
    pub window_us: u64,
}

impl Threshold {
    /// The threshold for a window that the kernel takes from anyone: the same part of it.
    pub fn unprivileged(self) -> Self {
        let windows = self.window_us.div_ceil(UNPRIVILEGED_WINDOW_US).max(1);
        let window_us = (windows * UNPRIVILEGED_WINDOW_US).min(MAX_WINDOW_US);
        let stall = u128::from(self.stall_us) * u128::from(window_us) / u128::from(self.window_us.max(1));
        Self { kind: self.kind, stall_us: (stall as u64).clamp(1, window_us), window_us }
    }

    /// The text that arms a trigger, which ends with a zero byte.
    fn text(self) -> ArrayString<64> {
        let kind = match self.kind {
            Kind::Some => "some",
            Kind::Full => "full",
        };
        let mut text = ArrayString::new();
        // 2 numbers of at most 20 digits fit.
        let _ = write!(text, "{kind} {} {}\0", self.stall_us, self.window_us);
        text
    }
}

/// How a trigger was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// Poll it for `POLLPRI`; `POLLERR` means that its group is gone. At most one event a window comes.
    pub fd: i32,
    /// The threshold that the kernel took.
    pub threshold: Threshold,
    /// Distinguishes its events from false ones.
    pub growth: Growth,
}

/// Determines whether stalls were behind a trigger's event. The first event of an unprivileged trigger may be none: the
/// kernel then compares all stall since boot with the threshold. So an event counts only if the file's total has grown
/// by the threshold. The growth is since the trigger was armed, or since the last event that counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    kind: Kind,
    stall_us: u64,
    before: u64,
}

impl Growth {
    /// Begins with what `file`, a pressure file, says now. To be called before its trigger is armed, so that no stall
    /// that the trigger counts is missed.
    pub fn begin(file: i32, kind: Kind, stall_us: u64) -> Result<Self> {
        Ok(Self { kind, stall_us, before: read_totals(file)?.of(kind) })
    }

    /// [`Growth::begin`] for the trigger that `text` arms; without such a text any growth counts.
    pub fn of_text(file: i32, text: &[u8]) -> Result<Self> {
        let mut parts = words(text.strip_suffix(b"\0").unwrap_or(text));
        let kind = if parts.next() == Some(b"full") { Kind::Full } else { Kind::Some };
        Self::begin(file, kind, parts.next().and_then(number).unwrap_or(1))
    }

    /// Whether it has grown enough by now.
    pub fn is_enough(&mut self, file: i32) -> Result<bool> {
        let now = read_totals(file)?.of(self.kind);
        let enough = now.saturating_sub(self.before) >= self.stall_us;
        if enough {
            self.before = now;
        }
        Ok(enough)
    }
}

fn read_totals(file: i32) -> Result<Totals> {
    let mut buf = [0u8; 256];
    let len = fd::pread(file, &mut buf, 0)?;
    Totals::parse(&buf[..len]).ok_or(Errno::ENODATA)
}

/// Arms a trigger on a pressure file. `open` opens it for reading and writing, afresh for each try, since a file takes
/// one trigger only. Falls back to the window that unprivileged openers may have. Where the file may not be written
/// (`EACCES`, `EROFS`), nothing can be armed, and reading must suffice.
pub fn arm(open: impl Fn() -> Result<i32>, wanted: Threshold) -> Result<Armed> {
    match arm_once(&open, wanted) {
        Err(Errno::EINVAL | Errno::EPERM) if wanted != wanted.unprivileged() => arm_once(&open, wanted.unprivileged()),
        other => other,
    }
}

fn arm_once(open: &impl Fn() -> Result<i32>, threshold: Threshold) -> Result<Armed> {
    let file = open()?;
    let text = threshold.text();
    let armed = Growth::begin(file, threshold.kind, threshold.stall_us)
        .and_then(|growth| fd::write(file, text.as_bytes()).map(|_| Armed { fd: file, threshold, growth }));
    if armed.is_err() {
        let _ = fd::close(file);
    }
    armed
}

/// Total stall times since boot, us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Stalls of [`Kind::Some`].
    pub some: u64,
    /// Stalls of [`Kind::Full`]; 0 where the file has no such line.
    pub full: u64,
}

impl Totals {
    /// Reads a pressure file's text: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and `full` alike.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let total = |kind: &[u8]| {
            text.split(|&b| b == b'\n')
                .map(words)
                .find_map(|mut line| (line.next()? == kind).then(|| line.find_map(|w| w.strip_prefix(b"total=")))?)
                .and_then(number)
        };
        Some(Self { some: total(b"some")?, full: total(b"full").unwrap_or(0) })
    }

    fn of(self, kind: Kind) -> u64 {
        match kind {
            Kind::Some => self.some,
            Kind::Full => self.full,
        }
    }
}

/// Stands in for a trigger that could not be armed: compares readings of the totals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    last: Option<(Totals, u64)>,
}

impl Meter {
    /// A meter that has read nothing yet.
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// Takes a reading at `now_ns`. Returns whether, since the last one, some tasks, and all tasks, waited for at least
    /// the part of the time that their threshold says. The first reading only starts the measurement.
    pub fn exceeded(&mut self, now: Totals, now_ns: u64, some: Threshold, full: Threshold) -> (bool, bool) {
        let Some((before, then_ns)) = self.last.replace((now, now_ns)) else { return (false, false) };
        let elapsed_us = now_ns.saturating_sub(then_ns) / 1000;
        let over = |stalled: u64, threshold: Threshold| {
            stalled > 0
                && u128::from(stalled) * u128::from(threshold.window_us)
                    >= u128::from(elapsed_us) * u128::from(threshold.stall_us)
        };
        (over(now.some.saturating_sub(before.some), some), over(now.full.saturating_sub(before.full), full))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const SOME: Threshold = Threshold { kind: Kind::Some, stall_us: 70_000, window_us: 1_000_000 };
    const FULL: Threshold = Threshold { kind: Kind::Full, stall_us: 100_000, window_us: 1_000_000 };

    #[test]
    fn the_text_and_the_unprivileged_window() {
        assert_eq!(SOME.text().as_str(), "some 70000 1000000\0");
        let wide = FULL.unprivileged();
        assert_eq!(wide, Threshold { kind: Kind::Full, stall_us: 200_000, window_us: 2_000_000 });
        assert_eq!(wide.unprivileged(), wide);
        let longest = Threshold { window_us: 9_500_000, ..SOME }.unprivileged();
        assert_eq!(longest.window_us, 10_000_000);
    }

    #[test]
    fn totals_with_and_without_a_full_line() {
        let text =
            b"some avg10=0.12 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        assert_eq!(Totals::parse(text), Some(Totals { some: 1234, full: 99 }));
        assert_eq!(Totals::parse(b"some avg10=0.00 total=5\n"), Some(Totals { some: 5, full: 0 }));
        assert_eq!(Totals::parse(b""), None);
    }

    #[test]
    fn readings_stand_in_for_triggers() {
        let mut meter = Meter::default();
        let at = |some, full| Totals { some, full };
        assert_eq!(meter.exceeded(at(1_000_000, 0), 0, SOME, FULL), (false, false));
        // 17.5 ms of 250 ms is the threshold's part of a second.
        assert_eq!(meter.exceeded(at(1_017_500, 0), 250_000_000, SOME, FULL), (true, false));
        assert_eq!(meter.exceeded(at(1_034_999, 25_000), 500_000_000, SOME, FULL), (false, true));
        assert_eq!(meter.exceeded(at(1_034_999, 25_000), 750_000_000, SOME, FULL), (false, false));
    }

    #[test]
    fn an_event_counts_only_with_stalls_behind_it() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let say = |some: u64, full: u64| {
            let text = std::format!("some avg10=0.00 total={some}\nfull avg10=0.00 total={full}\n");
            std::fs::write(&path, text).unwrap();
        };
        say(9_000_000, 5);
        let path_c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let file = fd::open(&path_c, fd::O_RDONLY).unwrap();
        let mut some = Growth::begin(file, Kind::Some, 70_000).unwrap();
        let mut full = Growth::of_text(file, b"full 100 2000000\0").unwrap();
        assert_eq!(Growth::of_text(file, b""), Ok(Growth { kind: Kind::Some, stall_us: 1, before: 9_000_000 }));
        assert_eq!((some.is_enough(file), full.is_enough(file)), (Ok(false), Ok(false)), "armed, and no stall since");
        // What the kernel takes for 9 s of stall is 233 us.
        say(9_000_233, 5);
        assert_eq!((some.is_enough(file), full.is_enough(file)), (Ok(false), Ok(false)));
        // Small ones add up, and count once.
        say(9_070_000, 104);
        assert_eq!((some.is_enough(file), full.is_enough(file)), (Ok(true), Ok(false)));
        say(9_139_999, 105);
        assert_eq!((some.is_enough(file), full.is_enough(file)), (Ok(false), Ok(true)));
        std::fs::write(&path, "no pressure file").unwrap();
        assert_eq!(some.is_enough(file), Err(Errno::ENODATA));
        fd::close(file).unwrap();
    }

    #[test]
    fn a_real_trigger() {
        match arm(|| fd::open(c"/proc/pressure/memory", fd::O_RDWR | fd::O_NONBLOCK), SOME) {
            Ok(armed) => {
                assert!(armed.threshold == SOME || armed.threshold == SOME.unprivileged());
                let mut poll = [fd::PollFd { fd: armed.fd, events: fd::POLLPRI, revents: 0 }];
                fd::ppoll(&mut poll, Some(0)).unwrap();
                assert_eq!(poll[0].revents & fd::POLLERR, 0);
                fd::close(armed.fd).unwrap();
            }
            Err(e) => weir_testing::skip!("no PSI trigger may be armed here: {e}"),
        }
    }

    #[test]
    fn a_trigger_without_privilege_is_believed_only_with_stalls() {
        use crate::os::syscall::{check, syscall3};
        let no_user = || {
            // SAFETY: changes the calling thread's ids only, and that thread ends.
            let _ = check(unsafe { syscall3(linux_raw_sys::general::__NR_setresuid, 65534, 65534, 65534) });
            let opened = || fd::open(c"/proc/pressure/memory", fd::O_RDWR | fd::O_NONBLOCK);
            let Ok(mut armed) = arm(opened, SOME) else {
                weir_testing::skip!("no PSI trigger may be armed here");
                return;
            };
            let before = read_totals(armed.fd).unwrap().some;
            let mut poll = [fd::PollFd { fd: armed.fd, events: fd::POLLPRI, revents: 0 }];
            fd::ppoll(&mut poll, Some(2_500_000_000)).unwrap();
            let believed = armed.growth.is_enough(armed.fd).unwrap();
            let grown = read_totals(armed.fd).unwrap().some - before;
            // Read before it was armed and after it was judged: as much as the judge saw, or more or less by a little.
            assert!(!believed || grown + 1_000 >= armed.threshold.stall_us, "{grown} us of stall, {poll:?}");
            fd::close(armed.fd).unwrap();
        };
        std::thread::spawn(no_user).join().unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_armed_says_why() {
        let err = arm(|| fd::open(c"/proc/pressure/no_such", fd::O_RDWR), SOME).unwrap_err();
        assert!(matches!(err, Errno::ENOENT | Errno::EACCES), "{err}");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>, stall: u64, window: u64, times: [u64; 4]) {
            let _ = Totals::parse(&text);
            let odd = Threshold { kind: Kind::Some, stall_us: stall, window_us: window };
            let _ = odd.unprivileged().text();
            let mut meter = Meter::default();
            meter.exceeded(Totals { some: times[0], full: 0 }, times[1], odd, odd);
            meter.exceeded(Totals { some: times[2], full: 9 }, times[3], odd, odd);
        }
    }
}
