//! What the node balancer balances: the zones of a node, and how they are scanned. The heap is one node, a test makes up others.

use crate::base::zone_class::ZoneClass;
use crate::policy::watermarks::{Policy, Zone};

/// Zones of a node.
pub const ZONES: usize = ZoneClass::COUNT;
/// What the balancer balances.
pub trait Node {
    /// The zones, by class, without boosts.
    fn zones(&self) -> [Zone; ZONES];
    /// When the node is balanced for high orders.
    fn policy(&self) -> Policy;
    /// The time, ns.
    fn now(&self) -> u64;
    /// CPU time that the calling thread has used, ns.
    fn cpu_time(&self) -> u64;
    /// The balancer's share of a CPU, percent. Not kept to at the severe level.
    fn cpu_percent(&self) -> u64;
    /// Whether pressure is severe.
    fn is_severe(&self) -> bool;
    /// For how long a boost lasts, ns.
    fn boost_life(&self) -> u64;
    /// Whether anything could be reclaimed for zone `zone`. Where not, it is left out and no failure.
    fn is_reclaimable(&self, zone: usize) -> bool;
    /// Reclaims for one zone.
    fn scan(&self, scan: &ZoneScan) -> Scanned;
    /// Lets throttled allocations look again.
    fn release_throttled(&self);
    /// The balancer was awake for `ns` more, `cpu_ns` of it on a CPU.
    fn note_awake(&self, ns: u64, cpu_ns: u64);
}

/// What one scan is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneScan {
    /// The zone that lacks memory.
    pub zone: usize,
    /// The order that is wanted.
    pub order: u32,
    /// Pages that the zone lacks: no more is reclaimed.
    pub pages: usize,
    /// What is in use is scanned by size >> priority.
    pub priority: u32,
    /// Whether dirty entries may be written back.
    pub may_write: bool,
}

/// What a scan came to, pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Looked at.
    pub scanned: usize,
    /// Reclaimed.
    pub reclaimed: usize,
    /// Evicted into another allocator's memory: it is free for the zone as that allocator releases it.
    pub elsewhere: usize,
}
