//! What the platform must find out about the machine before the first allocation, by as few calls as possible.

use crate::os::probe;
use crate::os::{fd, scheduling};

/// One more than the highest number of a NUMA node; 1 where there is one node or the kernel does not say.
pub(crate) fn node_count() -> usize {
    if fd::stat(c"/sys/devices/system/node/node1").is_err() {
        return 1;
    }
    probe::online_nodes().map_or(1, |(_, highest)| highest + 1)
}

/// A bound above every CPU index of this machine; `usize::MAX` where the kernel does not say.
pub(crate) fn cpus_bound() -> usize {
    // The kernel fills as many bytes as its CPU masks have, which is the bound, in bits; it refuses a shorter buffer.
    scheduling::affinity(&mut [0; 128]).map_or(usize::MAX, |words| words * 64)
}
