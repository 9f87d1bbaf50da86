//! The result of a run in one sentence.

use super::summary::{count, names};
use crate::base::units::bytes;
use crate::figures::run::{Summary, Totals};

/// Memory that fell by less than this part of the peak, or by less than this many bytes, stayed where it was.
const FELL: f64 = 0.1;
const FELL_BYTES: u64 = 1 << 20;

/// Whether the samples show about as much as the peak that the kernel counted, if it counted one.
pub fn is_seen(counted: Option<u64>, sampled: u64) -> bool {
    counted.is_none_or(|peak| !is_below(sampled, peak))
}

/// The verdict on a finished run, of which the samples show the peak, or do not.
pub fn of(summary: &Summary, is_seen: bool) -> String {
    let mut text = memory(summary, is_seen);
    text += &match summary.totals.processes {
        0 if summary.no_counters.is_some() => "; it is not known whether a process used Weir".into(),
        0 if summary.uncounted.is_empty() => "; no process used Weir".into(),
        0 => String::new(),
        _ => released(&summary.totals),
    };
    for (list, more, what) in [
        (&summary.without_weir, summary.more_without_weir, "without Weir"),
        (&summary.uncounted, summary.more_uncounted, "on Weir, but not counted"),
    ] {
        if !list.is_empty() {
            let named = names(list, more, |who| format!("{} {} {}", who.name, who.pid, who.why));
            text += &format!("; {what}: {named}");
        }
    }
    text + "."
}

/// Whether that is well below the peak.
fn is_below(bytes: u64, peak: u64) -> bool {
    let fell = peak.saturating_sub(bytes);
    fell >= FELL_BYTES && (fell as f64) >= peak as f64 * FELL
}

fn memory(summary: &Summary, is_seen: bool) -> String {
    let (Some(peak), Some(last)) = (summary.peak_resident_bytes, summary.last_resident_bytes) else {
        let bound = bytes(summary.peak_resident_bytes.unwrap_or(summary.peak_resident_bound_bytes));
        if let Some(why) = &summary.no_samples {
            return format!("Memory peaked at {bound} or less; it was not measured ({why})");
        }
        return match summary.peak.processes {
            0 => format!("Memory peaked at {bound} or less; the program ended before it was measured"),
            _ => format!("Memory peaked at {bound}; the program ended before it was measured again"),
        };
    };
    let [then, now] = [summary.peak.processes, summary.last_processes].map(|n| n as u64);
    if !is_seen {
        // Before the last sample or after it.
        format!("Memory peaked at {} while no sample was taken, and was {} at the last one", bytes(peak), bytes(last))
    } else if now < then {
        // What went with processes that ended was not released by those that stayed.
        format!(
            "Memory peaked at {} in {}, and the {now} left at the end held {}",
            bytes(peak),
            count(then),
            bytes(last)
        )
    } else if is_below(last, peak) {
        format!("Memory went down from {} to {}", bytes(peak), bytes(last))
    } else {
        format!("Memory stayed at its peak of {} until the end", bytes(peak))
    }
}

fn released(totals: &Totals) -> String {
    let (given_back, left_out) = (&totals.given_back_bytes, totals.processes_without_counters);
    let words = ["when idle", "under pressure", "to keep the limit", "when asked"];
    let causes: Vec<(u64, &str)> = given_back.all().into_iter().zip(words).collect();
    let parts: Vec<_> =
        causes.iter().filter(|(n, _)| *n > 0).map(|(n, cause)| format!("{} was released {cause}", bytes(*n))).collect();
    // What others released is not known.
    let known = match parts.is_empty() {
        true if left_out > 0 => String::new(),
        true => "; nothing was released".into(),
        false => format!("; {}", parts.join(", ")),
    };
    if left_out > 0 { format!("{known}; {} not counted", count(left_out)) } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::released::Released;
    use crate::figures::run::{ExcludedProcess, ResidentSum};

    fn summary(peak_resident_bytes: Option<u64>, last_resident_bytes: Option<u64>) -> Summary {
        Summary {
            peak_resident_bytes,
            peak_resident_bound_bytes: 2048,
            peak: ResidentSum { processes: 3, ..ResidentSum::default() },
            last_resident_bytes,
            last_processes: 1,
            ..Summary::default()
        }
    }

    #[test]
    fn what_fell_and_why_is_said() {
        let mut run = summary(Some(100 << 20), Some(10 << 20));
        run.totals.processes = 3;
        run.totals.given_back_bytes = Released { idle: 80 << 20, limit: 4096, ..Released::default() };
        let said = "Memory peaked at 100.0 MiB in 3 processes, and the 1 left at the end held 10.0 MiB; \
                    80.0 MiB was released when idle, 4.0 KiB was released to keep the limit.";
        assert_eq!(of(&run, true), said);
        run.last_processes = 3;
        assert!(of(&run, true).starts_with("Memory went down from 100.0 MiB to 10.0 MiB; 80.0 MiB was released"));
        run.last_resident_bytes = Some(95 << 20);
        run.totals.given_back_bytes = Released::default();
        assert_eq!(of(&run, true), "Memory stayed at its peak of 100.0 MiB until the end; nothing was released.");
    }

    #[test]
    fn a_peak_that_no_sample_shows_is_no_fall() {
        assert!(is_seen(Some(100 << 20), 95 << 20) && is_seen(Some(2 << 20), (2 << 20) - 1000) && is_seen(None, 0));
        assert!(!is_seen(Some(42 << 20), 33 << 10));
        let mut run = summary(Some(42 << 20), None);
        run.totals.processes = 1;
        let said = "Memory peaked at 42.0 MiB; the program ended before it was measured again; nothing was released.";
        assert_eq!(of(&run, false), said);
        run.last_resident_bytes = Some(1 << 20);
        let said = "Memory peaked at 42.0 MiB while no sample was taken, and was 1.0 MiB at the last one; nothing was released.";
        assert_eq!(of(&run, false), said);
    }

    #[test]
    fn what_was_not_counted_may_have_been_released() {
        let mut run = summary(Some(9 << 20), Some(9 << 20));
        run.last_processes = 3;
        (run.totals.processes, run.totals.processes_without_counters) = (4200, 105);
        assert_eq!(of(&run, true), "Memory stayed at its peak of 9.0 MiB until the end; 105 processes not counted.");
        assert!(run.to_string().contains("4200 used Weir, of which 105 were not counted"), "{run}");
        run.totals.given_back_bytes.idle = 4096;
        assert!(of(&run, true).ends_with("; 4.0 KiB was released when idle; 105 processes not counted."));
    }

    #[test]
    fn a_run_without_weir_says_so() {
        let mut run = summary(None, None);
        run.peak.processes = 0;
        run.without_weir = vec![ExcludedProcess { name: "bb".into(), pid: 7, why: "is statically linked".into() }];
        let said = "Memory peaked at 2.0 KiB or less; the program ended before it was measured; no process used Weir; \
                    without Weir: bb 7 is statically linked.";
        assert_eq!(of(&run, true), said);
        assert!(run.to_string().contains("none that used Weir"));
        run.more_without_weir = 4000;
        assert!(of(&run, true).ends_with("without Weir: bb 7 is statically linked and 4000 more."));
    }

    #[test]
    fn a_run_without_counters_does_not_say_that_nothing_used_weir() {
        let mut run = summary(Some(9 << 20), Some(9 << 20));
        run.last_processes = 3;
        run.no_counters = Some("cannot make a memfd".into());
        let said = "Memory stayed at its peak of 9.0 MiB until the end; it is not known whether a process used Weir.";
        assert_eq!(of(&run, true), said);
        for text in [run.to_string(), run.brief()] {
            assert!(text.contains("not known which used Weir: cannot make a memfd"), "{text}");
        }
        (run.no_counters, run.uncounted) =
            (None, vec![ExcludedProcess { name: "bb".into(), pid: 7, why: "is another's".into() }]);
        for text in [run.to_string(), run.brief()] {
            assert!(text.contains("none that was counted"), "{text}");
        }
    }
}
