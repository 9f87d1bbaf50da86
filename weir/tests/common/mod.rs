//! What several tests wait by.

use std::time::{Duration, Instant};

/// How long anything here may take; only a test that fails waits so long.
pub const PATIENCE: Duration = Duration::from_secs(50);

/// Waits until `done`, which is `what`.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
