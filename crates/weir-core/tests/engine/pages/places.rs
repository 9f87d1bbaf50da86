//! Where runs lie in a zone: densely, in what is resident first, and aligned as asked.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::units::{Order, PAGE, Pages};
use weir_core::heap::Heap;
use weir_core::pages::user_zone::UserZone;
use weir_core::telemetry::trace::Place;

use crate::fake::{Fake, run_on_node};
use crate::pages::zones::{PRIVATE, zone_of};

/// A step with a zone, in pages from its start.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many pages are taken, and lie here.
    Take(usize, usize),
    /// As `Take`, aligned to a power of two of pages: 3 is 8 pages.
    Aligned(usize, u32, usize),
    /// There is no room for so many pages, aligned so.
    Full(usize, u32),
    /// The page where a run begins, and its pages.
    Give(usize, usize),
    /// All that is free loses its memory.
    Release,
}
use Step::{Aligned, Full, Give, Release, Take};

struct Zone {
    heap: Box<Heap<Fake>>,
    zone: Box<UserZone>,
    base: usize,
}

impl Zone {
    fn new(blocks: usize) -> Self {
        let heap = Box::new(Heap::new(Fake::new()));
        let (zone, base) = zone_of(&heap, blocks, PRIVATE, NonNull::from(heap.platform()));
        Self { heap, zone, base }
    }

    fn take(&self, pages: usize, align: u32) -> Option<usize> {
        let heap = self.heap.pages();
        let run = heap.zone_take(&self.zone, Pages(pages), Order(align)).ok()?;
        Some((heap.zone_addr(&self.zone, run) - self.base) / PAGE)
    }

    fn run(&self, step: Step) {
        match step {
            Take(pages, page) => assert_eq!(self.take(pages, 0), Some(page), "{step:?}"),
            Aligned(pages, align, page) => assert_eq!(self.take(pages, align), Some(page), "{step:?}"),
            Full(pages, align) => assert_eq!(self.take(pages, align), None, "{step:?}"),
            Give(page, pages) => {
                self.heap.pages().zone_give(&self.zone, self.base + page * PAGE, Pages(pages)).unwrap()
            }
            Release => drop(self.heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure)),
        }
        self.heap.pages().zone_audit(&self.zone).unwrap();
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        self.heap.pages().remove_zone(&self.zone);
    }
}

/// Runs the steps in a new zone of so many pageblocks.
fn check(blocks: usize, steps: &[Step]) {
    let zone = Zone::new(blocks);
    steps.iter().for_each(|&step| zone.run(step));
}

#[test]
fn a_run_begins_in_the_free_pages_before_a_whole_pageblock() {
    check(3, &[Take(300, 0), Take(300, 300), Take(300, 600)]);
    // All of it but a page lies before, when there is so much.
    check(2, &[Take(415, 0), Take(98, 415)]);
    // A power of two, and what is aligned, fill pageblocks without a rest.
    check(3, &[Take(300, 0), Take(256, 512), Aligned(300, 1, 1024)]);
    // What is wholly free is not in the way of anything.
    check(3, &[Take(512, 0), Take(512, 512), Take(512, 1024), Give(512, 512), Give(1024, 512), Take(300, 1024)]);
    check(3, &[Take(512, 0), Take(512, 512), Take(512, 1024), Give(1024, 512), Give(512, 512), Take(300, 512)]);
}

#[test]
fn a_run_in_idle_pages_begins_in_the_idle_ones_before_them() {
    check(3, &[Take(300, 0), Take(724, 300), Give(300, 724), Take(400, 300)]);
    // There the pages before have no memory behind them.
    let until_idle = [Take(300, 0), Take(724, 300), Give(300, 724), Release, Take(512, 512), Give(512, 512)];
    check(3, &[&until_idle[..], &[Take(400, 512)]].concat());
}

#[test]
fn free_blocks_in_a_row_do_where_no_alignment_is_asked() {
    check(2, &[Take(416, 0), Take(96, 416)]);
    check(2, &[Take(416, 0), Take(95, 416)]);
    check(2, &[Take(416, 0), Aligned(96, 6, 512)]);
    // Of more than half a pageblock, too, where no whole one is free.
    check(1, &[Take(100, 0), Take(300, 100), Full(113, 0), Take(112, 400)]);
    // The shortest row that is long enough.
    check(2, &[Take(100, 0), Take(10, 100), Take(200, 110), Take(202, 310), Give(0, 100), Give(110, 200), Take(99, 0)]);
}

#[test]
fn more_than_a_pageblock_lies_over_several() {
    check(4, &[Take(600, 0), Take(600, 600), Take(600, 1200), Full(600, 0)]);
    check(3, &[Take(1, 0), Take(1024, 512)]);
    check(4, &[Take(1, 0), Aligned(1024, 10, 1024), Full(1024, 0)]);
    // Neither the last pageblock nor one with a neighbour in use has so much.
    check(3, &[Take(512, 0), Take(1, 512), Full(1024, 0), Full(600, 9), Take(600, 513)]);
    // Whichever of the two is looked at first.
    let full = [Take(512, 0), Take(512, 512), Take(512, 1024), Take(512, 1536)];
    check(4, &[&full[..], &[Give(1024, 512), Give(1536, 512), Take(1024, 1024)]].concat());
    check(4, &[&full[..], &[Give(1536, 512), Give(1024, 512), Take(1024, 1024)]].concat());
    check(4, &[&full[..], &[Give(512, 512), Give(1024, 512), Aligned(1024, 10, 0)]].concat()[..6]);
    check(4, &[&full[..], &[Give(512, 512), Give(1024, 512), Full(1024, 10), Aligned(1024, 9, 512)]].concat());
}

#[test]
fn a_run_goes_to_the_hole_that_the_last_of_its_length_left() {
    let three = [Take(40, 0), Take(40, 40), Take(40, 80)];
    check(1, &[&three[..], &[Give(0, 40), Give(80, 40), Take(40, 80), Take(40, 0)]].concat());
    check(1, &[&three[..], &[Give(80, 40), Give(0, 40), Take(40, 0), Take(40, 80)]].concat());
    // Unless a part of it is in use again.
    let full = [&three[..], &[Take(392, 120)]].concat();
    check(2, &[&full[..], &[Give(40, 40), Give(0, 40), Take(60, 0), Take(40, 512)]].concat());
}

/// The budget is told with the first node's zone, whatever node the program runs on.
#[test]
fn normal_of_the_first_node_is_told_where_it_has_no_memory() {
    let heap = Box::new(Heap::new(Fake::new()));
    heap.platform().node_count.store(2, Relaxed);
    heap.prepare();
    run_on_node(1);
    assert!(!heap.alloc(1 << 20).is_null());
    let mut told = Vec::new();
    heap.pages().each_zone(|zone| told.push((zone.place, zone.number, zone.bytes > 0)));
    assert_eq!(told, [(Place::Normal, 0, false), (Place::Normal, 1, true)]);
}
