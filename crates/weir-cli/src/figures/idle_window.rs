//! How long Weir keeps idle memory: the time in force, which may be longer than the setting `idle_ms`, and why.

use crate::base::units::{bytes, nanoseconds};
use serde::Serialize;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::time::Nanos;
use weir_core::policy::hold::Hold;
use weir_core::telemetry::stats::Stats;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdleWindow {
    /// Memory that is used again within this time is kept.
    #[serde(rename = "idle_window_ns")]
    pub ns: u64,
    /// In a program at rest what was not used for this time is gone.
    #[serde(rename = "idle_gone_ns")]
    pub gone_ns: u64,
    #[serde(rename = "idle_window_doublings")]
    pub doublings: u64,
    /// Bytes that were released for being idle, since the start.
    #[serde(rename = "released_idle_bytes")]
    released: u64,
    /// Bytes among these that were touched again so soon that a longer window would have kept them.
    #[serde(rename = "released_too_early_bytes")]
    again: u64,
}

impl IdleWindow {
    /// By the setting, and by what the refault meter made of it, which is on the page of statistics.
    pub fn of(idle_ms: u64, page: &Stats) -> Self {
        let of_page = [&page.patience, &page.given_back[Cause::Idle as usize], &page.calm_refault_bytes];
        let [doublings, released, again] = of_page.map(|count| count.load(Relaxed));
        Self::new(idle_ms, doublings, released, again)
    }

    pub fn new(idle_ms: u64, doublings: u64, released: u64, again: u64) -> Self {
        let hold = Hold::of(doublings.try_into().unwrap_or(u32::MAX), Nanos::of_ms(idle_ms));
        Self { ns: hold.least_ns().0, gone_ns: hold.most_ns().0, doublings, released, again }
    }
}

impl fmt::Display for IdleWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kept, gone] = [self.ns, self.gone_ns].map(nanoseconds);
        write!(f, "{kept} after its last use; in a program at rest it is gone {gone} after it")?;
        if self.doublings > 0 {
            write!(
                f,
                "; that is longer than `idle_ms`, as the program comes back for it: {} of {} released were touched again \
                 soon after",
                bytes(self.again),
                bytes(self.released)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_why_it_is_long() {
        let short = IdleWindow::new(300, 0, 9 << 20, 0).to_string();
        assert_eq!(short, "300.0 ms after its last use; in a program at rest it is gone 900.0 ms after it");
        let long = IdleWindow::new(300, 2, 9 << 20, 3 << 20).to_string();
        assert!(
            long.starts_with("1.20 s after its last use; in a program at rest it is gone 1.80 s after it"),
            "{long}"
        );
        assert!(
            long.ends_with("comes back for it: 3.0 MiB of 9.0 MiB released were touched again soon after"),
            "{long}"
        );
        assert_eq!(IdleWindow::new(u64::MAX, u64::MAX, u64::MAX, u64::MAX).ns, u64::MAX);
    }
}
