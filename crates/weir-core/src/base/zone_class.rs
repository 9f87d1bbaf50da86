//! The classes of a node's zones.

/// A class of pages. A request names the highest class that it can use, and falls back to lower ones; the exclusive classes
/// are used by requests that name just them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneClass {
    /// Pages below 4 GiB.
    Low32 = 0,
    /// Pages anywhere; what they may hold is the budget.
    Normal = 1,
    /// Locked pages of a program's own zones. Exclusive.
    Pinned = 2,
    /// Pages of the system's pool of huge pages, in a program's own zones. Exclusive.
    Hugetlb = 3,
}

impl ZoneClass {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All classes, by number.
    pub const ALL: [Self; Self::COUNT] = [Self::Low32, Self::Normal, Self::Pinned, Self::Hugetlb];

    /// Whether only requests that name this class use it, and these use no other.
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, Self::Pinned | Self::Hugetlb)
    }
}
