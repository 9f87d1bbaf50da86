//! NUMA nodes: each holds its zones.

use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::page_set::PageSet;
use super::report::releaser::RUNS;
use super::zone::FreeAreas;
use super::zone::locked::Zone;
use crate::base::run::Run;
use crate::base::units::{BlockNo, Order, PAGE};
use crate::platform::lock::{Lock, RankTurn};
use crate::platform::{Platform, rank};

/// Pageblocks isolated from a zone at a time (Linux page hinting: 16).
pub const BATCH: usize = 16;

/// A class of pages of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// Pages anywhere.
    Normal = 0,
    /// Pages below 4 GiB.
    Low32 = 1,
}

impl ZoneKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Normal, Self::Low32];
}

/// Held while a batch of a node's pages is isolated: one at a time, and none across a fork.
pub type Batch = Lock<Isolated, { rank::BATCH }>;

/// Contents of a batch: not on the stack, which may be the program's.
pub struct Isolated {
    /// Pageblocks, and which of their pages are isolated.
    pub(super) blocks: [(BlockNo, PageSet); BATCH],
    /// Pages of the batch that the platform did not take.
    pub(super) kept: [PageSet; BATCH],
    /// Runs of pages, on their way to the platform.
    pub(crate) runs: [Run; RUNS],
}

impl Isolated {
    const fn new() -> Self {
        Self {
            blocks: [(BlockNo(0), PageSet::EMPTY); BATCH],
            kept: [PageSet::EMPTY; BATCH],
            runs: [Run { addr: 0, len: 0 }; RUNS],
        }
    }
}

/// A node.
pub struct Node {
    zones: [Zone; 2],
    /// Work on all nodes or on none (drains, a program's own zones) goes under the first node's lock.
    pub(crate) batch: Batch,
}

impl Node {
    const fn new(number: u16) -> Self {
        Self {
            zones: [Zone::new(FreeAreas::new(number)), Zone::new(FreeAreas::new(number))],
            batch: Lock::new(Isolated::new()),
        }
    }

    /// The node's zone of a kind.
    pub(crate) fn zone(&self, kind: ZoneKind) -> &Zone {
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
    pub(crate) fn count(&self) -> usize {
        (self.count.load(Acquire) as usize).max(1)
    }

    /// The node `number`.
    ///
    /// # Panics
    /// If there is none of that number.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &Node {
        if number == 0 {
            return &self.first;
        }
        assert!(number < self.count(), "node {number}: there is no such node");
        // SAFETY: `more` points to as many nodes as `count` says, but for the first, and was stored before `count` was; they
        // are there for good.
        unsafe { &*self.more.load(Acquire).add(number - 1) }
    }

    /// All nodes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        (0..self.count()).map(|number| self.get(number))
    }

    /// Finds out how many there are, and maps all but the first; where there is no memory for them, the first serves all. As long as
    /// the platform does not know, the first does, and this is to be called again. To be called with no lock held.
    ///
    /// The first node's batch lock is held meanwhile, and is the first that a fork takes. So the number of nodes is the same when
    /// a fork gives the locks back as when it took them. The interleaving that this excludes: a fork takes the batch locks of one
    /// node and a thread finds a second. The fork then gives two locks back, one of which it never had.
    pub(crate) fn find<P: Platform>(&self, platform: &P) {
        if self.count.load(Acquire) > 0 {
            return;
        }
        let _no_fork = self.first.batch.lock(platform);
        if self.count.load(Relaxed) > 0 {
            return;
        }
        match platform.nodes().min(usize::from(u16::MAX)) {
            0 => {}
            1 => self.count.store(1, Release),
            count => self.map_more(platform, count),
        }
    }

    /// Maps the nodes from the second on. Not inlined: a node comes into being on the stack.
    #[cold]
    #[inline(never)]
    fn map_more<P: Platform>(&self, platform: &P, count: usize) {
        let bytes = ((count - 1) * size_of::<Node>()).next_multiple_of(PAGE);
        let Ok(addr) = platform.map_metadata(bytes, Order::PAGE) else { return self.count.store(1, Release) };
        let nodes = addr as *mut Node;
        for number in 1..count {
            // SAFETY: `bytes` bytes were mapped just now, which no other thread has the address of: room for `count - 1`
            // nodes, aligned to a page.
            unsafe { nodes.add(number - 1).write(Node::new(number as u16)) };
        }
        self.more.store(nodes, Release);
        self.count.store(count as u32, Release);
    }

    /// Passes the batch locks of all nodes to the turn of a rank. Under the first node's the number of nodes no longer changes: it
    /// is taken first, and given back last.
    pub(crate) fn freeze<P: Platform>(&self, turn: &RankTurn<'_, P>) {
        let first = || turn.lock(&self.first.batch);
        if !turn.is_last() {
            first();
        }
        turn.locks(|| self.iter().skip(1).map(|node| &node.batch));
        if turn.is_last() {
            first();
        }
    }
}
