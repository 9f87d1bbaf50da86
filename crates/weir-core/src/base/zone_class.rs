//! The classes of a node's zones, and the lists along which requests use them.

/// A class of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneClass {
    /// Pages below 4 GiB.
    Low32 = 0,
    /// Pages anywhere; what they may hold is the budget.
    Normal = 1,
    /// Locked pages of a program's own zones.
    Pinned = 2,
    /// Pages of the system's pool of huge pages, in a program's own zones.
    Hugetlb = 3,
}

impl ZoneClass {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All classes, by number.
    pub const ALL: [Self; Self::COUNT] = [Self::Low32, Self::Normal, Self::Pinned, Self::Hugetlb];
}

/// A zone list (Linux: zonelist): the zones that a request can use, in the order in which it tries them. A zone is of use to
/// requests of the lists that it is on, and to no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneList {
    /// LOW32 alone.
    Low32 = 0,
    /// NORMAL, then LOW32.
    Normal = 1,
    /// PINNED alone.
    Pinned = 2,
    /// HUGETLB alone.
    Hugetlb = 3,
    /// PINNED, then NORMAL and LOW32.
    PinnedFirst = 4,
    /// HUGETLB, then NORMAL and LOW32.
    HugetlbFirst = 5,
}

impl ZoneList {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// All lists, by number: first those of requests that can use no class above one, by the number of that.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Low32, Self::Normal, Self::Pinned, Self::Hugetlb, Self::PinnedFirst, Self::HugetlbFirst];

    /// The list of requests for a class that do not fall back from a program's own zone.
    pub(crate) fn of(class: ZoneClass) -> Self {
        Self::ALL[class as usize]
    }

    /// The list of requests that try a class first, and fall back to NORMAL.
    pub(crate) fn first(class: ZoneClass) -> Self {
        match class {
            ZoneClass::Pinned => Self::PinnedFirst,
            ZoneClass::Hugetlb => Self::HugetlbFirst,
            ZoneClass::Low32 | ZoneClass::Normal => Self::of(class),
        }
    }

    /// Its zones, the first one first; each has a higher number than the next.
    pub(crate) fn zones(self) -> &'static [ZoneClass] {
        use ZoneClass::{Hugetlb, Low32, Normal, Pinned};
        match self {
            Self::Low32 => &[Low32],
            Self::Normal => &[Normal, Low32],
            Self::Pinned => &[Pinned],
            Self::Hugetlb => &[Hugetlb],
            Self::PinnedFirst => &[Pinned, Normal, Low32],
            Self::HugetlbFirst => &[Hugetlb, Normal, Low32],
        }
    }

    /// Whether the zone of this number is on it.
    pub(crate) fn has(self, zone: usize) -> bool {
        self.zones().iter().any(|&class| class as usize == zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_falls_from_higher_numbers_to_lower_ones_and_begins_where_it_says() {
        for list in ZoneList::ALL {
            assert!(list.zones().is_sorted_by(|a, b| *a as usize > *b as usize), "{list:?}");
            assert_eq!(ZoneList::ALL[list as usize], list);
        }
        for class in ZoneClass::ALL {
            assert_eq!([ZoneList::of(class), ZoneList::first(class)].map(|list| list.zones()[0]), [class; 2]);
        }
    }
}
