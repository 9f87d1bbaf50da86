//! What is linked in a shard by hash: flights, and tasks that wait for them.
//!
//! Nodes lie where their owners have them, linked both ways in buckets. So a search, a link and an unlinking take constant time,
//! however many loads there are at once. More buckets are allocated under no lock, as that may evict, and are put in afterwards.
//! Without memory for them the chains grow longer.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;

use crate::evictable_cache::host;

/// Buckets of a table that has no block.
const FEW: usize = 4;
/// Nodes for each bucket above which more buckets are due.
const CROWD: usize = 2;

type First<T> = Option<NonNull<T>>;

/// A node's place in a table. The cells are used under the shard's lock.
pub struct Links<T> {
    next: Cell<First<T>>,
    previous: Cell<First<T>>,
    is_linked: Cell<bool>,
}

impl<T> Links<T> {
    /// Not linked.
    pub const fn new() -> Self {
        Self { next: Cell::new(None), previous: Cell::new(None), is_linked: Cell::new(false) }
    }

    /// Whether the node is in a table.
    pub fn are_linked(&self) -> bool {
        self.is_linked.get()
    }
}

/// A node.
pub trait Linked: Sized {
    /// Its place.
    fn links(&self) -> &Links<Self>;
    /// What it is found by; it stays the same while the node is linked.
    fn hash(&self) -> u32;
}

/// Buckets in a block of their own.
pub struct Buckets<T>(NonNull<[First<T>]>);

impl<T> Buckets<T> {
    /// So many, empty; `None`: there is no memory. A power of two, which is not 0.
    pub fn new(count: usize) -> Option<Self> {
        let block = host::alloc_zeroed(Layout::array::<First<T>>(count).ok()?)?;
        // Zeros are no nodes.
        Some(Self(NonNull::slice_from_raw_parts(block.cast(), count)))
    }
}

impl<T> Drop for Buckets<T> {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the block with this layout, and nothing else refers to it.
        unsafe { host::free(self.0.cast(), Layout::for_value(self.0.as_ref())) }
    }
}

/// Nodes by hash. It is used under the shard's lock.
pub struct Table<T> {
    /// The buckets, as long as there are no others.
    few: [First<T>; FEW],
    many: Option<Buckets<T>>,
    len: usize,
}

impl<T: Linked> Table<T> {
    /// An empty one.
    pub const fn new() -> Self {
        Self { few: [None; FEW], many: None, len: 0 }
    }

    /// True without nodes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of its block.
    pub fn bytes(&self) -> usize {
        self.many.as_ref().map_or(0, |many| many.0.len() * size_of::<First<T>>())
    }

    fn buckets(&self) -> &[First<T>] {
        // SAFETY: the block is this table's, and is borrowed with it.
        self.many.as_ref().map_or(&self.few, |many| unsafe { many.0.as_ref() })
    }

    fn bucket(&mut self, hash: u32) -> &mut First<T> {
        let buckets = match &mut self.many {
            // SAFETY: the block is this table's, and is borrowed with it exclusively.
            Some(many) => unsafe { many.0.as_mut() },
            None => &mut self.few,
        };
        // A power of two of them. The shard was chosen by the upper bits.
        &mut buckets[hash as usize & (buckets.len() - 1)]
    }

    fn chain(&self, first: First<T>) -> impl Iterator<Item = &T> {
        // SAFETY: a linked node stays where it is until it is unlinked, which needs the table exclusively.
        let nodes = core::iter::successors(first, |node| unsafe { node.as_ref() }.links().next.get());
        // SAFETY: the same.
        nodes.map(|node| unsafe { node.as_ref() })
    }

    /// The nodes of a hash.
    pub fn of(&self, hash: u32) -> impl Iterator<Item = &T> {
        let buckets = self.buckets();
        self.chain(buckets[hash as usize & (buckets.len() - 1)]).filter(move |node| node.hash() == hash)
    }

    /// All nodes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.buckets().iter().flat_map(|&first| self.chain(first))
    }

    /// Links a node that is in no table.
    ///
    /// # Safety
    /// The node stays where it is until [`Table::unlink`].
    pub unsafe fn link(&mut self, node: &T) {
        debug_assert!(!node.links().are_linked());
        node.links().is_linked.set(true);
        self.push(node);
        self.len += 1;
    }

    fn push(&mut self, node: &T) {
        let (first, links) = (self.bucket(node.hash()), node.links());
        links.previous.set(None);
        links.next.set(*first);
        if let Some(next) = first.replace(NonNull::from(node)) {
            // SAFETY: it is linked, and the lock is held.
            unsafe { next.as_ref() }.links().previous.set(Some(NonNull::from(node)));
        }
    }

    /// Unlinks a node, if it is linked.
    pub fn unlink(&mut self, node: &T) {
        let links = node.links();
        if !links.is_linked.replace(false) {
            return;
        }
        self.len -= 1;
        let (previous, next) = (links.previous.get(), links.next.get());
        match previous {
            // SAFETY: the neighbours of a linked node are linked, and the lock is held.
            Some(previous) => unsafe { previous.as_ref() }.links().next.set(next),
            None => *self.bucket(node.hash()) = next,
        }
        if let Some(next) = next {
            // SAFETY: as above.
            unsafe { next.as_ref() }.links().previous.set(previous);
        }
    }

    /// Unlinks the nodes for which `is_kept` does not hold.
    pub fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        for at in 0..self.buckets().len() {
            let mut next = self.buckets()[at];
            while let Some(node) = next {
                // SAFETY: it is linked, and the lock is held.
                let node = unsafe { node.as_ref() };
                next = node.links().next.get();
                if !is_kept(node) {
                    self.unlink(node);
                }
            }
        }
    }

    /// The number of buckets that is due, where there are few for the nodes.
    pub fn due(&self) -> Option<usize> {
        (self.len > CROWD * self.buckets().len()).then(|| self.len.next_power_of_two())
    }

    /// Moves the nodes to other buckets, if those are more; what is to be dropped under no lock.
    pub fn spread(&mut self, other: Buckets<T>) -> Option<Buckets<T>> {
        if other.0.len() <= self.buckets().len() {
            return Some(other);
        }
        let few = core::mem::replace(&mut self.few, [None; FEW]);
        let former = self.many.replace(other);
        // SAFETY: the block is of this function's, as the table gave it up.
        let firsts = former.as_ref().map_or(&few[..], |many| unsafe { many.0.as_ref() });
        for &first in firsts {
            let mut next = first;
            while let Some(node) = next {
                // SAFETY: it is linked, and the lock is held.
                let node = unsafe { node.as_ref() };
                next = node.links().next.get();
                self.push(node);
            }
        }
        former
    }

    /// The block of a table that is empty; to be dropped under no lock.
    pub fn spare(&mut self) -> Option<Buckets<T>> {
        if self.is_empty() { self.many.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    struct Node(u32, Links<Self>);

    impl Linked for Node {
        fn links(&self) -> &Links<Self> {
            &self.1
        }

        fn hash(&self) -> u32 {
            self.0
        }
    }

    fn longest(table: &Table<Node>) -> usize {
        table.buckets().iter().map(|&first| table.chain(first).count()).max().unwrap_or(0)
    }

    #[test]
    fn chains_stay_short_and_nodes_leave_in_any_order() {
        let nodes: Vec<_> = (0..5000).map(|hash| Node(hash, Links::new())).collect();
        let mut table = Table::new();
        for node in &nodes {
            // SAFETY: the nodes outlive the table's use.
            unsafe { table.link(node) };
            if let Some(count) = table.due() {
                drop(table.spread(Buckets::new(count).unwrap()));
            }
            assert!(longest(&table) <= CROWD + 1, "of {}", table.len);
        }
        assert!(nodes.iter().all(|node| table.of(node.0).count() == 1));
        assert!(table.spread(Buckets::new(16).unwrap()).is_some(), "fewer than there are");
        assert!(table.spare().is_none());
        // Those in the middle first, then all others, twice.
        nodes.iter().skip(1000).take(3000).for_each(|node| table.unlink(node));
        assert!(nodes.iter().all(|node| (table.of(node.0).count() == 1) == node.1.are_linked()));
        table.retain(|node| node.0 < 10);
        assert_eq!(table.len, 10);
        (0..2).for_each(|_| nodes.iter().for_each(|node| table.unlink(node)));
        assert!(table.is_empty() && longest(&table) == 0 && table.bytes() > 0);
        drop(table.spare());
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn nodes_of_one_hash_are_all_found() {
        let nodes: Vec<_> = (0..100).map(|at| Node(at % 2, Links::new())).collect();
        let mut table = Table::new();
        // SAFETY: the nodes outlive the table's use.
        nodes.iter().for_each(|node| unsafe { table.link(node) });
        drop(table.spread(Buckets::new(1024).unwrap()));
        assert_eq!([0, 1, 2].map(|hash| table.of(hash).count()), [50, 50, 0]);
        nodes[..50].iter().for_each(|node| table.unlink(node));
        assert_eq!([0, 1].map(|hash| table.of(hash).count()), [25, 25]);
        table.retain(|_| false);
    }
}
