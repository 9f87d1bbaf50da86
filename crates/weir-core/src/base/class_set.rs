//! A set of classes.

use super::units::Class;

/// A set of classes, one bit each.
///
/// ```
/// use weir_core::base::class_set::ClassSet;
/// use weir_core::base::units::Class;
///
/// let mut set = ClassSet::EMPTY;
/// set.insert(Class(7));
/// set.insert(Class(200));
/// assert!(set.contains(Class(200)) && !set.contains(Class(8)));
/// assert_eq!(set.from(Class(100)).collect::<Vec<_>>(), [Class(200), Class(7)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSet([u64; 4]);

impl ClassSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// Adds `class`.
    pub fn insert(&mut self, class: Class) {
        self.0[class.index() / 64] |= 1 << (class.index() % 64);
    }

    /// Whether `class` is in it.
    pub fn contains(&self, class: Class) -> bool {
        self.0[class.index() / 64] >> (class.index() % 64) & 1 == 1
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// How many are in it.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The member that is `turn`th, counted round and round; class 0 if there is none.
    pub(crate) fn nth(self, turn: usize) -> Class {
        self.from(Class(0)).nth(turn % self.len().max(1)).unwrap_or(Class(0))
    }

    /// Members, ascending from the first that is at least `first`, then the others.
    pub fn from(self, first: Class) -> impl Iterator<Item = Class> {
        (0..=u8::MAX).map(move |i| Class(first.0.wrapping_add(i))).filter(move |&class| self.contains(class))
    }
}

impl FromIterator<Class> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        let mut set = Self::EMPTY;
        classes.into_iter().for_each(|class| set.insert(class));
        set
    }
}
