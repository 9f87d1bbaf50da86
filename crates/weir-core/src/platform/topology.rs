//! NUMA nodes.

/// The nodes of the machine.
pub trait Topology {
    /// Nodes: parts of the machine that each have zones and depots of their own. 0: it is not known yet.
    fn nodes(&self) -> usize;
    /// The node that the caller runs on.
    fn node(&self) -> usize;
    /// The NUMA node that node `node` is a part of. Memory is as near to one of its parts as to another.
    fn numa_node(&self, node: usize) -> usize {
        node
    }
}
