//! A node of made-up zones: what is free and in use, what reclaim finds, and the time, are a test's.

use std::cell::{Cell, RefCell};

use weir_core::base::time::{Nanos, Time};
use weir_core::base::units::Pages;
use weir_core::base::zone_class::{ZoneClass, ZoneList};
use weir_core::policy::watermarks::{Policy, Zone, is_balanced};
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::node_balancer::{Node, NodeBalancer, Part, Scanned, ZONES, ZoneScan};

/// The small zone, and the large one above it.
pub const SMALL: usize = ZoneClass::Low32 as usize;
pub const LARGE: usize = ZoneClass::Normal as usize;
pub const GIB: usize = 1 << 18;
pub const MS: u64 = 1_000_000;

/// The task that a test has done during a scan.
type During = Box<dyn Fn(&FakeNode)>;

/// How many of `size` pages a scan at `priority` takes: `size >> priority`, at least `batch`, and never more than there are.
fn window(size: usize, priority: u32, batch: usize) -> usize {
    size.checked_shr(priority).unwrap_or(0).max(batch).min(size)
}

/// One zone.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeZone {
    pub managed: usize,
    pub free: usize,
    pub largest: u32,
    /// Pages in use that reclaim can take.
    pub cached: usize,
    /// One in so many of the pages that a scan looks at is reclaimed; 0: none.
    pub yields: usize,
    /// Pages reclaimed until a block of the order that was scanned for is free.
    pub until_block: usize,
    /// Memory that goes lies in another allocator: a quarter of it is free then, and nothing is a release of the heap's.
    pub is_elsewhere: bool,
}

/// A node with its balancer and that one's thread.
pub struct FakeNode {
    pub balancer: NodeBalancer,
    turn: RefCell<Turn>,
    pub zones: RefCell<[FakeZone; ZONES]>,
    pub policy: Cell<Policy>,
    pub clock: Cell<u64>,
    pub cpu: Cell<u64>,
    /// CPU time of a scan, and time that it takes, ns.
    pub scan_ns: Cell<(u64, u64)>,
    pub percent: Cell<u64>,
    pub severe: Cell<bool>,
    pub urgent: Cell<bool>,
    pub scans: RefCell<Vec<ZoneScan>>,
    pub reclaimed: Cell<[usize; ZONES]>,
    pub releases: Cell<usize>,
    pub awake: Cell<(u64, u64)>,
    /// The percentage of what NORMAL lacks that other processes leave to this one.
    pub part: Cell<usize>,
    /// Pages that other processes have given back.
    pub given: Cell<usize>,
    /// Done during each scan.
    pub during: RefCell<Option<During>>,
}

impl FakeNode {
    pub fn new(zones: &[(usize, FakeZone)]) -> Self {
        let mut all = [FakeZone::default(); ZONES];
        zones.iter().for_each(|&(at, zone)| all[at] = zone);
        Self {
            balancer: NodeBalancer::new(),
            turn: RefCell::default(),
            zones: RefCell::new(all),
            policy: Cell::new(Policy::Any),
            clock: Cell::new(1000 * MS),
            cpu: Cell::new(0),
            scan_ns: Cell::new((0, 0)),
            percent: Cell::new(100),
            severe: Cell::new(false),
            urgent: Cell::new(false),
            scans: RefCell::default(),
            reclaimed: Cell::default(),
            releases: Cell::new(0),
            awake: Cell::new((0, 0)),
            part: Cell::new(100),
            given: Cell::new(0),
            during: RefCell::new(None),
        }
    }

    pub fn change(&self, zone: usize, change: impl FnOnce(&mut FakeZone)) {
        change(&mut self.zones.borrow_mut()[zone]);
    }

    pub fn zone(&self, zone: usize) -> FakeZone {
        self.zones.borrow()[zone]
    }

    pub fn pass_ms(&self, ms: u64) {
        self.clock.set(self.clock.get() + ms * MS);
    }

    pub fn view(&self) -> [Zone; ZONES] {
        self.balancer.view(self)
    }

    pub fn is_balanced(&self, order: u32, list: ZoneList) -> bool {
        is_balanced(&self.view(), order, list, self.policy())
    }

    pub fn wake(&self, order: u32, list: ZoneList, is_short: bool) -> bool {
        self.balancer.wake(self, order, list, is_short)
    }

    pub fn boost(&self, zone: ZoneClass, pages: Pages) -> bool {
        self.balancer.boost(self, zone, pages)
    }

    pub fn step(&self) -> Next {
        self.balancer.step(self, &mut self.turn.borrow_mut())
    }

    /// Whether the thread sleeps.
    pub fn is_asleep(&self) -> bool {
        self.turn.borrow().is_asleep()
    }

    /// Steps until the balancer has nothing to do now; how many steps that took. The clock stands still.
    pub fn settle(&self) -> (Next, usize) {
        for steps in 1..10_000 {
            match self.step() {
                Next::Again => {}
                next => return (next, steps),
            }
        }
        panic!("the balancer goes on for ever")
    }

    /// Steps as [`Self::settle`] does, and lets the time of dozes and pauses pass, until the balancer sleeps.
    pub fn sleep(&self) {
        for _ in 0..10_000 {
            match self.settle().0 {
                Next::At(Time(at)) if !self.is_asleep() => self.clock.set(self.clock.get().max(at)),
                _ => return,
            }
        }
        panic!("the balancer never sleeps")
    }
}

/// A zone of which `free` pages are free, all else is cached, and each scanned page is reclaimed.
pub fn zone(managed: usize, free: usize) -> FakeZone {
    FakeZone { managed, free, largest: 10, cached: managed - free, yields: 1, ..FakeZone::default() }
}

impl Node for FakeNode {
    fn zones(&self) -> [Zone; ZONES] {
        self.zones
            .borrow()
            .map(|of| Zone::new(Pages(of.managed), Pages(of.free), (of.free > 0).then_some(of.largest), 10))
    }

    fn policy(&self) -> Policy {
        self.policy.get()
    }

    fn now(&self) -> Time {
        Time(self.clock.get())
    }

    fn cpu_time(&self) -> Nanos {
        Nanos(self.cpu.get())
    }

    fn cpu_percent(&self) -> u64 {
        self.percent.get()
    }

    fn is_severe(&self) -> bool {
        self.severe.get()
    }

    fn is_urgent(&self) -> bool {
        self.urgent.get()
    }

    fn boost_life(&self) -> Nanos {
        Nanos(2000 * MS)
    }

    fn is_reclaimable(&self, zone: usize) -> bool {
        self.zone(zone).cached > 0
    }

    fn part(&self, lacks: Pages) -> Part {
        Part { own: lacks * self.part.get() / 100, given: Pages(self.given.get()) }
    }

    fn scan(&self, scan: &ZoneScan) -> Scanned {
        self.scans.borrow_mut().push(*scan);
        assert!(self.scans.borrow().len() < 100_000, "scans for ever");
        let (cpu, time) = self.scan_ns.get();
        self.cpu.set(self.cpu.get() + cpu);
        self.clock.set(self.clock.get() + time);
        let mut of = self.zone(scan.zone);
        // No more is looked at than is needed for what is wanted.
        let most = window(of.cached, scan.priority, 32);
        let scanned = if of.yields > 0 { most.min(scan.pages.0 * of.yields) } else { most };
        let reclaimed = scanned.checked_div(of.yields).unwrap_or(0);
        of.cached -= reclaimed;
        of.free += if of.is_elsewhere { reclaimed / 4 } else { reclaimed };
        of.until_block = of.until_block.saturating_sub(reclaimed);
        if of.until_block == 0 && reclaimed > 0 {
            of.largest = of.largest.max(scan.order);
        }
        self.change(scan.zone, |zone| *zone = of);
        let mut all = self.reclaimed.get();
        all[scan.zone] += reclaimed;
        self.reclaimed.set(all);
        let during = self.during.borrow_mut().take();
        if let Some(during) = during {
            during(self);
            *self.during.borrow_mut() = Some(during);
        }
        let (reclaimed, elsewhere) = if of.is_elsewhere { (0, reclaimed) } else { (reclaimed, 0) };
        Scanned { scanned: Pages(scanned), reclaimed: Pages(reclaimed), elsewhere: Pages(elsewhere) }
    }

    fn release_throttled(&self) {
        self.releases.set(self.releases.get() + 1);
    }

    fn note_awake(&self, awake: Nanos, on_cpu: Nanos) {
        let (all, cpu) = self.awake.get();
        self.awake.set((all + awake.0, cpu + on_cpu.0));
    }
}
