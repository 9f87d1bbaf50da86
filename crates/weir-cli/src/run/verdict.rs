//! The result of a run in one sentence.

use super::summary::{count, names};
use crate::base::units::bytes;
use crate::figures::released::Released;
use crate::figures::run::Summary;

/// Memory that fell by less than this part of the peak, or by less than this many bytes, stayed where it was.
const FELL: f64 = 0.1;
const FELL_BYTES: u64 = 1 << 20;

/// The verdict on a finished run.
pub fn of(summary: &Summary) -> String {
    let mut text = memory(summary);
    text += &match summary.totals.processes {
        0 if summary.uncounted.is_empty() => "; no process used Weir".into(),
        0 => String::new(),
        _ => released(&summary.totals.given_back_bytes),
    };
    for (list, what) in [(&summary.without_weir, "without Weir"), (&summary.uncounted, "on Weir, but not counted")] {
        if !list.is_empty() {
            text += &format!("; {what}: {}", names(list, |who| format!("{} {} {}", who.name, who.pid, who.why)));
        }
    }
    text + "."
}

fn memory(summary: &Summary) -> String {
    let (Some(peak), Some(last)) = (summary.peak_resident_bytes, summary.last_resident_bytes) else {
        let bound = summary.peak_resident_bytes.unwrap_or(summary.peak_resident_bound_bytes);
        return format!("Memory peaked at {} or less; the program ended before it was measured", bytes(bound));
    };
    let [then, now] = [summary.peak.processes, summary.last_processes].map(|n| n as u64);
    let fell = peak.saturating_sub(last);
    if now < then {
        // What went with processes that ended was not released by those that stayed.
        format!(
            "Memory peaked at {} in {}, and the {now} left at the end held {}",
            bytes(peak),
            count(then),
            bytes(last)
        )
    } else if fell < FELL_BYTES || (fell as f64) < peak as f64 * FELL {
        format!("Memory stayed at its peak of {} until the end", bytes(peak))
    } else {
        format!("Memory went down from {} to {}", bytes(peak), bytes(last))
    }
}

fn released(given_back: &Released) -> String {
    let words = ["when idle", "under pressure", "to keep the limit", "when asked"];
    let causes: Vec<(u64, &str)> = given_back.all().into_iter().zip(words).collect();
    let parts: Vec<_> =
        causes.iter().filter(|(n, _)| *n > 0).map(|(n, cause)| format!("{} was released {cause}", bytes(*n))).collect();
    if parts.is_empty() { "; nothing was released".into() } else { format!("; {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(of(&run), said);
        run.last_processes = 3;
        assert!(of(&run).starts_with("Memory went down from 100.0 MiB to 10.0 MiB; 80.0 MiB was released"));
        run.last_resident_bytes = Some(95 << 20);
        run.totals.given_back_bytes = Released::default();
        assert_eq!(of(&run), "Memory stayed at its peak of 100.0 MiB until the end; nothing was released.");
    }

    #[test]
    fn a_run_without_weir_says_so() {
        let mut run = summary(None, None);
        run.without_weir = vec![ExcludedProcess { name: "bb".into(), pid: 7, why: "is statically linked".into() }];
        let said = "Memory peaked at 2.0 KiB or less; the program ended before it was measured; no process used Weir; \
                    without Weir: bb 7 is statically linked.";
        assert_eq!(of(&run), said);
        assert!(run.to_string().contains("none that used Weir"));
    }
}
