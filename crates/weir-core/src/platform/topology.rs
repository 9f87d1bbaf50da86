//! NUMA nodes.

/// The nodes of the machine.
pub trait Topology {
    /// NUMA nodes, at least 1.
    fn nodes(&self) -> usize;
    /// The node that the caller runs on.
    fn node(&self) -> usize;
}
