//! How long Weir keeps idle memory: the window in force, which may be longer than the setting `idle_ms`.

use crate::base::units::nanoseconds;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Stats;

/// Doublings at most: a window is no longer than the longest `refault_ms`, which is less.
const MOST: u64 = 32;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IdleWindow {
    #[serde(rename = "idle_window_ns")]
    pub ns: u64,
    #[serde(rename = "idle_window_doublings")]
    pub doublings: u64,
}

impl IdleWindow {
    /// By the setting, and by what the refault meter made of it, which is on the page of statistics.
    pub fn of(idle_ms: u64, page: &Stats) -> Self {
        Self::new(idle_ms, page.patience.load(Relaxed))
    }

    pub fn new(idle_ms: u64, doublings: u64) -> Self {
        let doublings = doublings.min(MOST);
        Self { ns: idle_ms.saturating_mul(1_000_000).saturating_mul(1 << doublings), doublings }
    }
}

impl fmt::Display for IdleWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&nanoseconds(self.ns))?;
        match self.doublings {
            0 => Ok(()),
            _ => write!(
                f,
                ": `idle_ms` is {}, doubled {} times, as too much of what was released was touched again soon after",
                nanoseconds(self.ns >> self.doublings),
                self.doublings
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_why_it_is_long() {
        assert_eq!(IdleWindow::new(300, 0).to_string(), "300.0 ms");
        let long = IdleWindow::new(300, 7).to_string();
        assert!(long.starts_with("38.40 s: `idle_ms` is 300.0 ms, doubled 7 times, as too much"), "{long}");
        assert!(IdleWindow::new(u64::MAX, u64::MAX).ns == u64::MAX);
    }
}
