//! NUMA nodes: each holds its zones.

use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::zone::{FreeAreas, Zone};
use crate::base::run::Run;
use crate::base::units::PAGE;
use crate::platform::lock::Lock;
use crate::platform::{Platform, rank};
use crate::telemetry::stats;

/// A class of pages of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// Pages anywhere.
    Normal = 0,
    /// Pages below 4 GiB.
    Low32 = 1,
}

impl ZoneKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Normal, Self::Low32];
}

/// Held while a batch of a node's pages is isolated: one at a time, and none across a fork.
pub type Batch = Lock<(), { rank::BATCH }>;

/// A node.
pub struct Node {
    zones: [Zone; 2],
    /// What is of all nodes or of none (drains, a program's own zones) goes under the first node's.
    pub(crate) batch: Batch,
}

impl Node {
    const fn new(number: u16) -> Self {
        Self { zones: [Lock::new(FreeAreas::new(number)), Lock::new(FreeAreas::new(number))], batch: Lock::new(()) }
    }

    /// Its zone of a kind.
    pub fn zone(&self, kind: ZoneKind) -> &Zone {
        &self.zones[kind as usize]
    }
}

/// The nodes: the first is part of the heap, the others are mapped when the heap grows for the first time.
pub struct Nodes {
    first: Node,
    more: AtomicPtr<Node>,
    /// How many there are; 0: not known yet, and only the first is used.
    count: AtomicU32,
}

impl Nodes {
    /// The first.
    pub(crate) const fn new() -> Self {
        Self { first: Node::new(0), more: AtomicPtr::new(core::ptr::null_mut()), count: AtomicU32::new(0) }
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        (self.count.load(Acquire) as usize).max(1)
    }

    /// The node `number`, below the count.
    #[inline]
    pub fn get(&self, number: usize) -> &Node {
        if number == 0 {
            return &self.first;
        }
        debug_assert!(number < self.count());
        // SAFETY: as many nodes as `count` says were mapped before it was stored, and are there for good.
        unsafe { &*self.more.load(Acquire).add(number - 1) }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        (0..self.count()).map(|number| self.get(number))
    }

    /// Finds out how many there are, and maps all but the first; where there is no memory for them, the first serves all.
    /// The caller holds a window's turn to grow, so that no fork falls in between.
    pub(crate) fn find<P: Platform>(&self, platform: &P) {
        if self.count.load(Relaxed) > 0 {
            return;
        }
        let count = platform.nodes().clamp(1, usize::from(u16::MAX));
        let bytes = ((count - 1) * size_of::<Node>()).next_multiple_of(PAGE);
        let mapped = if count > 1 { platform.map_metadata(bytes, PAGE).ok() } else { None };
        let Some(addr) = mapped else {
            // Another thread, which grows the other window, may have been luckier.
            let _ = self.count.compare_exchange(0, 1, AcqRel, Relaxed);
            return;
        };
        let nodes = addr as *mut Node;
        for number in 1..count {
            // SAFETY: fresh memory for that many nodes.
            unsafe { nodes.add(number - 1).write(Node::new(number as u16)) };
        }
        if self.more.compare_exchange(core::ptr::null_mut(), nodes, AcqRel, Relaxed).is_err() {
            return platform.unmap(Run { addr, len: bytes });
        }
        stats::add(&platform.stats().metadata_bytes, bytes as u64);
        self.count.store(count as u32, Release);
    }
}
