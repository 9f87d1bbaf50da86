//! Calls of the platform into the layers above it (`threads`, `process`): one table of functions, which the process's
//! heap is made with. The platform names no thread and no part of a process by itself.

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::telemetry::tables::EvictableRow;

/// The functions. Each may be called from any thread that allocates or frees.
pub struct Hooks {
    /// The heap is used for the first time.
    pub first_use: fn(),
    /// Memory was freed: the background thread may have something to do.
    pub freed: fn(),
    /// The heap has grown: it may be worth a background thread.
    pub grown: fn(),
    /// Whether the background thread does the balancer's work, or will when there is some.
    pub has_background: fn() -> bool,
    /// The pressure that the calling thread may read by itself where there is no background thread.
    pub read_pressure: fn() -> (Level, Cause),
    /// A further node's memory is to be released by a worker of its own; the last argument says whether pressure is
    /// severe.
    pub start_node_worker: fn(usize, Cause, bool),
    /// An allocation of so many bytes would exceed `hard_limit`, and is about to fail. Called on its thread, under no lock. Whether
    /// something was freed, so that another try is worth it.
    pub hard_limit_reached: fn(usize) -> bool,
    /// Objects of user caches wait for the finalizer thread, or are to be moved by it.
    pub wake_finalizer: fn(),
    /// A `fork` takes the locks of evictable caches (`true`), or gives them back.
    pub fork_evictable_caches: fn(bool),
    /// Calls a function with the figures of each evictable cache; `false`: they cannot be read now.
    pub evictable_caches: fn(&mut dyn FnMut(EvictableRow)) -> bool,
    /// The calling thread has waited for a lock of the heap for [`LONG_WAIT_NS`].
    pub waited_long: fn(),
}

/// How long a thread waits for a lock before it checks whether a `fork` holds it. Locks are held for microseconds,
/// except by a `fork`, which takes seconds where a process is large. So the time says little, and the check decides.
pub const LONG_WAIT_NS: u64 = 1_000_000_000;
