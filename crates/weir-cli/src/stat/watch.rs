//! Printing again and again, until a signal or an error ends it.

use crate::base::failure::Failure;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Calls `print` at each interval.
pub fn watch(interval: Duration, mut print: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    let mut due = Instant::now();
    loop {
        print()?;
        due += interval;
        match due.checked_duration_since(Instant::now()) {
            Some(rest) => std::thread::sleep(rest),
            // It takes longer than the interval: what was missed is not made up for.
            None => due = Instant::now(),
        }
    }
}

/// A text in place of the last one on a terminal; elsewhere after it, with a blank line between.
pub fn page(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return format!("{text}\n");
    }
    // To the upper left corner; each line is cleared behind its end, and so is all below the last.
    let lines: String = text.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}
