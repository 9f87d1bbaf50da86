//! A set of caches, by number.

/// A set of cache numbers, one bit each.
///
/// ```
/// let mut set = weir_core::base::id_set::IdSet::EMPTY;
/// set.insert(7);
/// set.insert(200);
/// assert!(set.contains(200) && !set.contains(8));
/// assert_eq!(set.from(100).collect::<Vec<_>>(), [200, 7]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdSet([u64; 4]);

impl IdSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// The one.
    pub(crate) fn of(class: usize) -> Self {
        let mut set = Self::EMPTY;
        set.insert(class);
        set
    }

    /// Adds `class`, below 256.
    pub fn insert(&mut self, class: usize) {
        self.0[class / 64] |= 1 << (class % 64);
    }

    /// Whether `class` is in it.
    pub fn contains(&self, class: usize) -> bool {
        self.0[class / 64] >> (class % 64) & 1 == 1
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// How many are in it.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The member that is `turn`th, counted round and round; 0 if there is none.
    pub(crate) fn nth(self, turn: usize) -> usize {
        self.from(0).nth(turn % self.len().max(1)).unwrap_or(0)
    }

    /// Members, ascending from the first that is at least `first`, then the others.
    pub fn from(self, first: usize) -> impl Iterator<Item = usize> {
        (0..256).map(move |i| (first + i) % 256).filter(move |&class| self.contains(class))
    }
}
