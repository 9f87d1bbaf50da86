//! What several tests wait by, and what they do not wait for.

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

/// Stalls of the machine that these tests run on are no pressure: under it no cache grows and pools are emptied, and the
/// tests say themselves when there is some.
extern "C" fn ignore_stalls() {
    for name in ["psi_some_us", "psi_full_us"] {
        weir::settings::set(name, "10000000").expect("a setting");
    }
}

// SAFETY: the loader calls what this section holds, functions without arguments, once, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = ignore_stalls;
