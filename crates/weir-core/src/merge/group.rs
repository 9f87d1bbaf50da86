//! Which pages go together: those of the same geometry that have no two objects in use at the same place.
//!
//! Pages are put in order by their objects in use, most first. Each goes to the fullest of the open groups that has its places
//! free (best fit). Measured for 64 places a page, 1 in 16 in use: first fit over 64 groups leaves 49 MiB of 250. Best fit over
//! 512 groups leaves 24 MiB.

use core::cmp::Reverse;

use crate::base::units::PageNo;
use crate::caches::slab::merged::LONGEST_RING;

/// No page: the end of a group.
const END: u32 = u32::MAX;

/// A page that could be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Candidate {
    /// Bit i: there is an object in use at place i.
    pub live: u64,
    /// Pages of equal geometry have the same number: cache, node, and place in the slab.
    pub kind: u64,
    pub page: PageNo,
    /// The next one of its group.
    next: u32,
}

impl Candidate {
    pub(super) const fn new(page: PageNo, live: u64, kind: u64) -> Self {
        Self { live, kind, page, next: END }
    }
}

/// Pages that go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Group {
    /// Places that are in use on one of them.
    union: u64,
    /// The latest of them.
    head: u32,
    objects: u32,
    pub pages: u32,
}

impl Group {
    /// Its pages among `candidates`.
    pub(super) fn pages_of<'a>(&self, candidates: &'a [Candidate]) -> impl Iterator<Item = &'a Candidate> {
        core::iter::successors(candidates.get(self.head as usize), |page| candidates.get(page.next as usize))
    }

    fn takes(&self, page: &Candidate, most: u32) -> bool {
        let is_free = self.union & page.live == 0;
        is_free && self.pages < LONGEST_RING && self.objects + page.live.count_ones() <= most
    }

    fn add(&mut self, at: usize, page: &mut Candidate) {
        page.next = if self.pages == 0 { END } else { self.head };
        self.head = at as u32;
        self.union |= page.live;
        self.objects += page.live.count_ones();
        self.pages += 1;
    }
}

/// Groups `candidates`, which are put in order for that; `most` says how many places of a kind may be in use in a group, and
/// `close` gets each group of at least two pages. `open` is room for the groups that are worked on.
pub(super) fn group(
    candidates: &mut [Candidate],
    open: &mut [Group],
    mut most: impl FnMut(u64) -> u32,
    mut close: impl FnMut(&[Candidate], &Group),
) {
    candidates.sort_unstable_by_key(|page| (page.kind, Reverse(page.live.count_ones()), page.page));
    let (mut from, mut done) = (0, |candidates: &[Candidate], group: &Group| {
        if group.pages > 1 {
            close(candidates, group);
        }
    });
    while from < candidates.len() {
        let kind = candidates[from].kind;
        let end = from + candidates[from..].partition_point(|page| page.kind == kind);
        let (most, mut n) = (most(kind), 0);
        for at in from..end {
            let page = candidates[at];
            if page.live.count_ones() > most {
                continue;
            }
            let fits = (0..n).filter(|&i| open[i].takes(&page, most)).max_by_key(|&i| open[i].objects);
            let i = fits.unwrap_or_else(|| {
                if n == open.len() {
                    let fullest = (0..n).max_by_key(|&i| open[i].objects).unwrap_or(0);
                    done(candidates, &open[fullest]);
                    n -= 1;
                    open.swap(fullest, n);
                }
                open[n] = Group::default();
                n += 1;
                n - 1
            });
            open[i].add(at, &mut candidates[at]);
            if open[i].objects == most {
                done(candidates, &open[i]);
                n -= 1;
                open.swap(i, n);
            }
        }
        open[..n].iter().for_each(|group| done(candidates, group));
        from = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// Groups of pages, by their numbers, and the pages that no group needs.
    fn grouped(pages: &[(u64, u64)], groups: usize, most: u32) -> Vec<Vec<u32>> {
        let mut candidates: Vec<_> =
            pages.iter().enumerate().map(|(i, &(kind, live))| Candidate::new(PageNo(i as u32), live, kind)).collect();
        let (mut open, mut found) = (std::vec![Group::default(); groups], Vec::new());
        group(
            &mut candidates,
            &mut open,
            |_| most,
            |all, group| {
                let of: Vec<_> = group.pages_of(all).map(|page| page.page.0).collect();
                assert_eq!(of.len(), group.pages as usize);
                found.push(of);
            },
        );
        found
    }

    #[test]
    fn the_fullest_group_that_fits_is_taken() {
        // 3 objects, then 2 and 1 that fit it, and one that fits nothing.
        let found = grouped(&[(1, 0b0001), (1, 0b1110_0000), (1, 0b0001_1000), (1, 0b1000_0000)], 8, 8);
        assert_eq!(found, [[0, 2, 1]]);
        assert!(grouped(&[(1, 1), (2, 2)], 8, 8).is_empty(), "of another geometry");
        assert!(grouped(&[(1, 1), (1, 2)], 8, 1).is_empty(), "a place is to stay free");
    }

    #[test]
    fn one_in_sixteen_of_64_places_is_packed_to_a_little_more_than_what_is_live() {
        let mut random = 88_172_645_463_325_252u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let pages: Vec<_> = (0..20_000).map(|_| (1, next() & next() & next() & next())).filter(|p| p.1 != 0).collect();
        let found = grouped(&pages, 512, 63);
        let spared: usize = found.iter().map(|group| group.len() - 1).sum();
        let live: u32 = pages.iter().map(|page| page.1.count_ones()).sum();
        let left = (pages.len() - spared) * 64;
        assert!(left * 100 <= live as usize * 130, "{left} places for {live}");
    }

    proptest! {
        #[test]
        fn no_two_pages_of_a_group_have_an_object_at_the_same_place(
            pages in prop::collection::vec((0u64..3, any::<u64>().prop_map(|x| x & x >> 7 & x >> 13)), 0..300),
            groups in 1usize..20,
            most in 1u32..=64,
        ) {
            let mut seen = BTreeSet::new();
            for group in grouped(&pages, groups, most) {
                prop_assert!(group.len() > 1 && group.len() <= LONGEST_RING as usize);
                let mut union = 0;
                for &page in &group {
                    let (kind, live) = pages[page as usize];
                    prop_assert!(seen.insert(page) && union & live == 0 && kind == pages[group[0] as usize].0);
                    union |= live;
                }
                prop_assert!(union.count_ones() <= most);
            }
        }
    }
}
