//! A set of classes.

use super::units::Class;

/// A set of classes, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassSet([u64; 4]);

impl ClassSet {
    /// The empty set.
    pub(crate) const EMPTY: Self = Self([0; 4]);

    /// Adds `class`.
    pub(crate) fn insert(&mut self, class: Class) {
        self.0[class.index() / 64] |= 1 << (class.index() % 64);
    }

    /// Whether `class` is in it.
    pub(crate) fn contains(&self, class: Class) -> bool {
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
    pub(crate) fn from(self, first: Class) -> impl Iterator<Item = Class> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn members_come_round_from_any_class_on() {
        let set = ClassSet::from_iter([7, 200, 255].map(Class));
        assert!(set.contains(Class(255)) && !set.contains(Class(8)));
        assert!(set.from(Class(100)).eq([200, 255, 7].map(Class)));
        assert_eq!([0, 1, 5].map(|turn| set.nth(turn)), [7, 200, 255].map(Class));
        assert!(ClassSet::EMPTY.is_empty() && ClassSet::EMPTY.nth(3) == Class(0));
    }
}
