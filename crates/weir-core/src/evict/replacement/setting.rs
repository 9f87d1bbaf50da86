//! The two ways to run the queues. Neither is best on every trace; each is, or comes close to it, on a family.

/// How the queues are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// 5 % small, and an entry has to earn its place in the main queue: files, blocks and objects in mixed use, loops and scans.
    /// A cache begins with this one.
    Balanced,
    /// 1 % small, and the main queue alone decides, as a CLOCK, which is close to LRU. What was used last is used next, as where
    /// the working set drifts.
    Recent,
}

impl Setting {
    /// All of them, the first first.
    pub const ALL: [Self; 2] = [Self::Balanced, Self::Recent];

    /// The small queue's part of `target`, bytes. At least 1, as a cache whose entries weigh 1 each may be small. Where the main
    /// queue had all of it, each entry would come into that without a test.
    pub(crate) const fn small(self, target: usize) -> usize {
        // In 1/256, and split so that no target overflows.
        let share = match self {
            Self::Balanced => 13,
            Self::Recent => 3,
        };
        let part = (target >> 8) * share + (((target & 255) * share) >> 8);
        if part == 0 && target > 0 { 1 } else { part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_queue_has_a_part_of_every_target() {
        for (setting, share) in [(Setting::Balanced, 13), (Setting::Recent, 3)] {
            assert_eq!(setting.small(0), 0);
            assert!((1..1000).all(|target| (1..=target).contains(&setting.small(target))));
            assert_eq!(setting.small(256 << 20), share << 20);
            assert!(setting.small(usize::MAX) < usize::MAX / 3);
        }
    }
}
