//! Messages of the engine about itself, and the parameters that steer it.

use crate::base::invalid_free::InvalidFree;
use crate::telemetry::stats::Stats;
use crate::telemetry::tunables::Tunables;

/// Counters, parameters, the report of an invalid free, and what tracers hear of samples.
pub trait Diagnostics {
    /// An invalid free of `addr`; the size class it was taken for has objects of `size` bytes, 0 if none. Returns only if the
    /// program is to go on as if the call had not been made.
    fn invalid_free(&self, what: InvalidFree, addr: usize, size: usize);
    /// One call of a callback of the program's, registered as `name`, has run for `ns`; it is not called again before it
    /// returns. Others wait for it unless `has_thread`: its queue has a thread of its own.
    fn callback_is_slow(&self, name: &[u8], ns: u64, has_thread: bool) {
        let _ = (name, ns, has_thread);
    }
    /// A callback of the program's panicked, and, where `is_disabled`, is not called again.
    fn callback_panicked(&self, name: &[u8], is_disabled: bool) {
        let _ = (name, is_disabled);
    }
    /// A block of `size` bytes is a sample of the heap profile, which stands for `weight` bytes. The caller does not have it yet.
    fn block_is_sampled(&self, block: usize, size: usize, weight: u64) {
        let _ = (block, size, weight);
    }
    /// A sampled block is about to be freed, or resized.
    fn sample_is_freed(&self, block: usize) {
        let _ = block;
    }
    /// The page of counters.
    fn stats(&self) -> &Stats;
    /// The parameters.
    fn tunables(&self) -> &Tunables;
    /// Whether each free is checked, for which no CPU keeps buckets.
    #[inline]
    fn checks_all(&self) -> bool {
        self.tunables().check.get() != 0
    }
}
