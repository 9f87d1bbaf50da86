//! What the engine tells about itself, and the parameters it is steered by.

use crate::base::invalid_free::InvalidFree;
use crate::telemetry::stats::Stats;
use crate::telemetry::tunables::Tunables;

/// Counters, parameters, and the report of an invalid free.
pub trait Diagnostics {
    /// An invalid free of `addr`; the size class it was taken for has objects of `size` bytes, 0 if none. Returns only if the
    /// program is to go on as if the call had not been made.
    fn invalid_free(&self, what: InvalidFree, addr: usize, size: usize);
    /// A callback of the program's, registered as `name`, has run for `ns`, and is not called again before it returns.
    fn callback_is_slow(&self, name: &[u8], ns: u64) {
        let _ = (name, ns);
    }
    /// A callback of the program's panicked, and is not called again.
    fn callback_panicked(&self, name: &[u8]) {
        let _ = name;
    }
    /// The page of counters.
    fn stats(&self) -> &Stats;
    /// The parameters.
    fn tunables(&self) -> &Tunables;
}
