//! Batches between a program and the slabs of one cache, against a model that knows each object alone.

use std::collections::BTreeSet;

use weir_core::base::units::{PageNo, Pages, Span};
use weir_core::caches::geometry::{Geometry, MALLOC, MAX_BATCH, SLAB_TAIL};
use weir_core::caches::slab::lists::SlabLists;
use weir_core::caches::slab::pieces::{Faults, Pieces};
use weir_core::pages::window::unchecked;
use weir_core::pages::window::{NOTHING, Window};
use weir_core::platform::Reach;

use super::*;

/// A step on the slabs.
#[derive(Clone, Debug)]
enum Op {
    /// Takes so many.
    Take(usize),
    /// Gives so many back: from this place of those held on, every so many, and then in the order of their addresses.
    Give { from: usize, step: usize, count: usize, sorted: bool },
    /// Gives so many back in one batch, and frees some of them again, in the batch and after it.
    GiveTwice { from: usize, count: usize, inside: bool },
    /// Gives the empty slabs to the zone.
    TakeEmpty,
}

fn op() -> impl Strategy<Value = Op> {
    let give = (any::<usize>(), 1..40usize, 1..=MAX_BATCH, any::<bool>());
    prop_oneof![
        4 => (1..=MAX_BATCH).prop_map(Op::Take),
        4 => give.prop_map(|(from, step, count, sorted)| Op::Give { from, step, count, sorted }),
        1 => (any::<usize>(), 1..=MAX_BATCH / 2, any::<bool>())
            .prop_map(|(from, count, inside)| Op::GiveTwice { from, count, inside }),
        1 => Just(Op::TakeEmpty),
    ]
}

/// Small classes mostly, and now and then a cache without buckets, the number of which is in its slabs' headers.
fn geometry() -> impl Strategy<Value = Geometry> {
    let sizes = (16..2000usize).prop_map(|size| Geometry::new(UNBUCKETED + 5, size));
    prop_oneof![3 => (1..12usize).prop_map(|class| MALLOC[class]), 1 => (1..MALLOC.len()).prop_map(|class| MALLOC[class]), 1 => sizes]
}

/// The slabs, and what is known of them.
struct Slabs<'a> {
    lists: SlabLists,
    window: &'a Window,
    g: Geometry,
    /// Pages for more slabs.
    fresh: Vec<PageNo>,
    /// Free objects of the slabs there are.
    free: BTreeSet<usize>,
    held: Vec<*mut u8>,
}

impl Slabs<'_> {
    fn take(&mut self, most: usize) {
        let mut pieces = Pieces::NONE;
        if self.free.is_empty() {
            self.add();
        }
        let n = self.lists.take(self.window, &self.g, most, &mut pieces);
        assert_eq!(n, most.min(self.free.len()));
        let before = self.held.len();
        pieces.for_each(self.window, &self.g, |object| self.held.push(object));
        assert_eq!(self.held.len(), before + n);
        let is_free = |object: &*mut u8| self.free.remove(&(*object as usize));
        assert!(self.held[before..].iter().all(is_free), "an object that is not free was handed out");
        let slab_of = |object: *mut u8| object as usize / (usize::from(self.g.pages).next_power_of_two() * PAGE);
        let in_order = |pair: &[*mut u8]| slab_of(pair[0]) != slab_of(pair[1]) || pair[0] < pair[1];
        assert!(self.held[before..].windows(2).all(in_order));
    }

    fn add(&mut self) {
        let Some(page) = self.fresh.pop() else { return };
        let tail = if self.g.is_numbered() { SLAB_TAIL } else { self.g.class() };
        // SAFETY: pages of a slab that was taken from the window.
        unsafe {
            unchecked::set_class(self.window, Span::new(page, Pages(self.g.pages.into())), tail);
            unchecked::set_class(self.window, Span::new(page, Pages(1)), self.g.class());
        }
        self.lists.add(self.window, &self.g, page);
        let first = self.window.addr_of(page);
        self.free.extend((0..usize::from(self.g.objects)).map(|i| first + i * self.g.size as usize));
    }

    /// Gives a batch back and checks that what is refused is what the model refuses one by one.
    fn give(&mut self, batch: &[*mut u8]) {
        let mut refused: Vec<_> = batch.iter().copied().filter(|&object| !self.free.insert(object as usize)).collect();
        let mut pieces = Pieces::NONE;
        let Faults { odd, twice } = pieces.collect(self.window, &self.g, batch);
        assert_eq!(odd, 0);
        let is_whole = self.lists.give(self.window, &self.g, &mut pieces);
        let mut found: Vec<_> = (0..batch.len()).filter(|i| twice >> i & 1 == 1).map(|i| batch[i]).collect();
        if is_whole {
            assert_eq!(refused.len(), found.len());
        } else {
            pieces.for_each(self.window, &self.g, |object| found.push(object));
        }
        refused.sort();
        found.sort();
        assert_eq!(found, refused);
    }

    fn pick(&mut self, from: usize, step: usize, count: usize) -> Vec<*mut u8> {
        let mut out = Vec::new();
        let mut at = from;
        while out.len() < count && !self.held.is_empty() {
            at = (at % self.held.len() + step) % self.held.len();
            out.push(self.held.swap_remove(at));
        }
        out
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Take(most) => self.take(most),
            Op::Give { from, step, count, sorted } => {
                let mut batch = self.pick(from, step, count);
                if sorted {
                    batch.sort();
                }
                self.give(&batch);
            }
            Op::GiveTwice { from, count, inside } => {
                let once = self.pick(from, 1, count);
                let again = once.iter().step_by(3);
                if inside {
                    let batch: Vec<_> = once.iter().chain(again).copied().collect();
                    self.give(&batch);
                } else {
                    self.give(&once);
                    self.give(&again.copied().collect::<Vec<_>>());
                }
            }
            Op::TakeEmpty => {
                while let Some(slab) = self.lists.take_empty(self.window, &self.g, 0) {
                    let first = self.window.addr_of(slab.page);
                    let objects = usize::from(self.g.objects);
                    for i in 0..objects {
                        assert!(self.free.remove(&(first + i * self.g.size as usize)), "a slab in use was given up");
                    }
                    // SAFETY: pages of a slab that was taken from the window.
                    unsafe {
                        unchecked::set_class(self.window, Span::new(slab.page, Pages(self.g.pages.into())), NOTHING)
                    };
                    self.fresh.push(slab.page);
                }
            }
        }
        let objects = usize::from(self.g.objects);
        assert_eq!(self.lists.free, self.free.len());
        assert_eq!(self.lists.slabs * objects, self.free.len() + self.held.len());
        let is_object = |&object: &*mut u8| self.lists.is_object(self.window, &self.g, object as usize);
        assert!(self.held.iter().all(is_object));
        let empty = |first: usize| (0..objects).all(|i| self.free.contains(&(first + i * self.g.size as usize)));
        let align = usize::from(self.g.pages).next_power_of_two() * PAGE;
        let firsts: BTreeSet<_> = self.free.iter().map(|object| object & !(align - 1)).collect();
        assert_eq!(self.lists.empty, firsts.into_iter().filter(|&first| empty(first)).count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn batches_leave_slabs_as_objects_one_by_one_would(
        g in geometry(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let (fake, window) = (Fake::new(), Window::new(Reach::Any));
        let blocks = window.growing(&fake).grow(8, 0).unwrap();
        let align = usize::from(g.pages).next_power_of_two();
        // The window's first pageblock may lack pages.
        let pages = blocks.start.next().first().0..blocks.end.first().0;
        let fresh = pages.step_by(align).map(PageNo).collect();
        let lists = SlabLists::new();
        let mut slabs = Slabs { lists, window: &window, g, fresh, free: BTreeSet::new(), held: Vec::new() };
        ops.into_iter().for_each(|op| slabs.run(op));
        // All of it back: every slab is empty in the end.
        while !slabs.held.is_empty() {
            slabs.run(Op::Give { from: 7, step: 13, count: MAX_BATCH, sorted: false });
        }
        slabs.run(Op::TakeEmpty);
        prop_assert_eq!((slabs.lists.slabs, slabs.lists.free), (0, 0));
    }
}
