//! Histories of zones of a program's own against a model of what is handed out. No run is handed out twice or out of a
//! range that is out of use, contents stay, and a wrong `give` is refused.

#![no_main]

#[path = "../../crates/weir-core/tests/fake/mod.rs"]
mod fake;

use arbitrary::{Result, Unstructured};
use fake::{Call, Fake, overlap};
use libfuzzer_sys::fuzz_target;
use std::ptr::NonNull;
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{BlockNo, Order, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, Pages};
use weir_core::heap::Heap;
use weir_core::pages::pageblock::Pageblock;
use weir_core::pages::user_zone::{MemoryKind, UserZone};
use weir_core::platform::Memory as _;

/// Pageblocks of a zone.
const BLOCKS: usize = 6;
/// Steps of a history at most.
const STEPS: usize = 200;

/// A run that is handed out.
#[derive(Clone, Copy)]
struct Held {
    addr: usize,
    pages: usize,
    byte: u8,
}

/// A zone, and what the model has of it.
struct Model {
    zone: Box<UserZone>,
    base: usize,
    held: Vec<Held>,
    /// Which pageblocks hand nothing out.
    closed: [bool; BLOCKS],
}

struct World {
    heap: Box<Heap<Fake>>,
    zones: Vec<Model>,
    next_byte: u8,
}

fuzz_target!(|data: &[u8]| {
    // It ends where the input does.
    let _ = history(&mut Unstructured::new(data));
});

fn history(u: &mut Unstructured) -> Result<()> {
    let mut world = World { heap: Box::new(Heap::new(Fake::new())), zones: Vec::new(), next_byte: 0 };
    for _ in 0..u.int_in_range(1..=2)? {
        let memory = MemoryKind { zero: u.arbitrary()?, huge: u.arbitrary()?, reported: u.arbitrary()?, shared: false };
        world.add_zone(memory);
    }
    let ended = steps(u, &mut world);
    world.finish();
    ended
}

fn steps(u: &mut Unstructured, world: &mut World) -> Result<()> {
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let nth = u.choose_index(world.zones.len())?;
        match u.int_in_range(0..=14u8)? {
            0..=4 => {
                let pages = if u.ratio(1, 4)? { u.int_in_range(1..=1100)? } else { u.int_in_range(1..=64)? };
                world.take(nth, pages, u.int_in_range(0..=3)?);
            }
            5..=8 if !world.zones[nth].held.is_empty() => {
                let i = u.choose_index(world.zones[nth].held.len())?;
                world.give(nth, i);
            }
            9 => {
                world.heap.platform().pass_ms(u.int_in_range(0..=700)?);
                world.heap.reclaim().balance_calm();
            }
            10 => drop(world.heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure)),
            11 => {
                let (first, count) = range(u)?;
                match u.int_in_range(0..=2u8)? {
                    0 => world.close(nth, first, count),
                    1 => world.offline(nth, first, count),
                    _ => world.open(nth, first, count),
                }
            }
            12 => world.heap.platform().fail(Call::Release, u.arbitrary()?),
            13 => world.give_wrongly(nth, u.arbitrary()?, u.int_in_range(1..=2000)?),
            _ => drop(world.heap.purge()),
        }
        world.check();
    }
    Ok(())
}

/// The first and last bytes of each of the first pages of a run that is held, and of its last one.
fn edges(run: Run) -> Vec<&'static mut [u8]> {
    let pages = run.len / PAGE;
    let at = |page: usize| [run.addr + page * PAGE, run.addr + page * PAGE + PAGE - 8];
    let pages = (0..pages.min(16)).chain((pages > 16).then(|| pages - 1));
    // SAFETY: the run is the caller's, and used by nothing else until it gives it back.
    pages.flat_map(at).map(|addr| unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, 8) }).collect()
}

fn range(u: &mut Unstructured) -> Result<(usize, usize)> {
    let first = u.int_in_range(0..=BLOCKS - 1)?;
    Ok((first, u.int_in_range(1..=BLOCKS - first)?))
}

impl World {
    fn add_zone(&mut self, memory: MemoryKind) {
        let fake: &Fake = self.heap.platform();
        let base = fake.map(BLOCKS * PAGEBLOCK, Order::BLOCK).expect("memory");
        let described = UserZone::descriptor_bytes(BLOCKS * PAGEBLOCK).next_multiple_of(PAGE);
        let described = fake.map(described, Order::PAGE).expect("memory") as *mut Pageblock;
        let run = Run { addr: base, len: BLOCKS * PAGEBLOCK };
        // SAFETY: all of it lives as long as the heap, from whose list the zone is taken before it goes.
        let zone = Box::new(unsafe { UserZone::new(run, described, NonNull::from(fake), memory) });
        // SAFETY: it stays in its box, used through shared references, until it is taken off the list.
        unsafe { self.heap.zones().add(NonNull::from(&*zone)) };
        self.zones.push(Model { zone, base, held: Vec::new(), closed: [false; BLOCKS] });
    }

    fn take(&mut self, nth: usize, pages: usize, order: u32) {
        let heap = &self.heap;
        let model = &mut self.zones[nth];
        let Ok(run) = heap.pages().zone_take(&model.zone, Pages(pages), Order(order)) else {
            assert!(!model.has_room_for(pages, order), "{pages} pages were free and in use by nobody");
            return;
        };
        let addr = heap.pages().zone_addr(&model.zone, run);
        let new = Run { addr, len: pages * PAGE };
        assert!(addr >= model.base && new.addr + new.len <= model.base + BLOCKS * PAGEBLOCK, "not of the zone");
        assert!((addr - model.base).is_multiple_of(PAGE << order), "not aligned to order {order}");
        let is_of = |held: &Held| overlap(new, Run { addr: held.addr, len: held.pages * PAGE });
        assert!(!model.held.iter().any(is_of), "{new:?} is in use");
        for block in (addr - model.base) / PAGEBLOCK..(addr + new.len - model.base).div_ceil(PAGEBLOCK) {
            assert!(!model.closed[block], "pageblock {block} is out of use");
        }
        assert!(!run.zero || edges(new).iter().flat_map(|edge| edge.iter()).all(|&byte| byte == 0), "not zero");
        self.next_byte = self.next_byte % 255 + 1;
        edges(new).iter_mut().for_each(|edge| edge.fill(self.next_byte));
        heap.platform().hold(addr, new.len);
        model.held.push(Held { addr, pages, byte: self.next_byte });
    }

    fn give(&mut self, nth: usize, i: usize) {
        let model = &mut self.zones[nth];
        let Held { addr, pages, byte } = model.held.swap_remove(i);
        let edges = edges(Run { addr, len: pages * PAGE });
        assert!(edges.iter().flat_map(|edge| edge.iter()).all(|&b| b == byte), "{addr:#x} lost its contents");
        self.heap.platform().let_go(addr);
        self.heap.pages().zone_give(&model.zone, addr, Pages(pages)).expect("it was handed out");
    }

    /// Gives what was not handed out, or not in these pieces.
    fn give_wrongly(&mut self, nth: usize, at: u32, pages: usize) {
        let model = &self.zones[nth];
        let addr = model.base.wrapping_add(at as usize % ((BLOCKS + 1) * PAGEBLOCK)).wrapping_sub(PAGEBLOCK / 2);
        let wanted = Run { addr, len: pages * PAGE };
        let holds = |held: &Held| held.addr <= addr && wanted.addr + wanted.len <= held.addr + held.pages * PAGE;
        // Part of a run may be given back, which is no mistake; nor are two neighbours in one piece.
        let touches = |held: &Held| overlap(wanted, Run { addr: held.addr, len: held.pages * PAGE });
        if addr.is_multiple_of(PAGE) && (model.held.iter().any(holds) || model.held.iter().any(touches)) {
            return;
        }
        assert!(self.heap.pages().zone_give(&model.zone, addr, Pages(pages)).is_err(), "{wanted:?} was not handed out");
    }

    fn close(&mut self, nth: usize, first: usize, count: usize) {
        let model = &mut self.zones[nth];
        let in_use = self.heap.pages().zone_close(&model.zone, BlockNo(first as u32).row(count));
        assert_eq!(in_use, Pages(model.pages_held(first, count)));
        model.closed[first..first + count].fill(true);
    }

    fn offline(&mut self, nth: usize, first: usize, count: usize) {
        let model = &mut self.zones[nth];
        let held = model.pages_held(first, count);
        match self.heap.pages().zone_offline(&model.zone, BlockNo(first as u32).row(count)) {
            Ok(()) => {
                assert_eq!(held, 0, "some of it is in use");
                model.closed[first..first + count].fill(true);
            }
            Err(in_use) => assert!(held > 0 && in_use.pages == Pages(held), "{in_use:?}, not {held}"),
        }
    }

    fn open(&mut self, nth: usize, first: usize, count: usize) {
        let model = &mut self.zones[nth];
        self.heap.pages().zone_open(&model.zone, BlockNo(first as u32).row(count));
        model.closed[first..first + count].fill(false);
    }

    fn check(&self) {
        for model in &self.zones {
            self.heap.pages().zone_audit(&model.zone).unwrap_or_else(|fault| panic!("{fault:?}"));
            let usage = self.heap.pages().zone_usage(&model.zone);
            assert_eq!(usage.used.0, model.held.iter().map(|held| held.pages).sum::<usize>());
        }
        assert_eq!(self.heap.platform().take_misuses(), []);
    }

    fn finish(mut self) {
        self.heap.platform().fail_nothing();
        for nth in 0..self.zones.len() {
            while !self.zones[nth].held.is_empty() {
                self.give(nth, 0);
            }
            self.open(nth, 0, BLOCKS);
            // All of it is whole again.
            for _ in 0..BLOCKS {
                self.take(nth, PAGEBLOCK_PAGES, 0);
            }
            assert_eq!(self.zones[nth].held.len(), BLOCKS, "a pageblock was lost");
            while !self.zones[nth].held.is_empty() {
                self.give(nth, 0);
            }
        }
        self.check();
        self.zones.iter().for_each(|model| self.heap.pages().remove_zone(&model.zone));
    }
}

impl Model {
    /// Pages handed out of some pageblocks.
    fn pages_held(&self, first: usize, count: usize) -> usize {
        let (begin, end) = (self.base + first * PAGEBLOCK, self.base + (first + count) * PAGEBLOCK);
        let inside = |held: &Held| (held.addr + held.pages * PAGE).min(end).saturating_sub(held.addr.max(begin)) / PAGE;
        self.held.iter().map(inside).sum()
    }

    /// Whether a pageblock of which nothing is handed out could have served the request.
    fn has_room_for(&self, pages: usize, order: u32) -> bool {
        let is_free = |&block: &usize| !self.closed[block] && self.pages_held(block, 1) == 0;
        pages <= PAGEBLOCK_PAGES && 1 << order <= PAGEBLOCK_PAGES && (0..BLOCKS).any(|block| is_free(&block))
    }
}

fn drop<T>(_: T) {}
