//! A platform of plain allocations: no system call, so that an interpreter can follow every access of the engine.
//!
//! Each window and each block is one allocation of the test's own allocator, whose address is exposed. The engine counts in
//! addresses, and makes pointers of them. What is unmapped is freed, so that a use after it shows.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::run::Run;
use weir_core::base::time::Time;
use weir_core::base::units::{Class, Order, PAGEBLOCK};
use weir_core::platform::cpu_table::{CpuSlab, NO_CPU, Pushed, Table};
use weir_core::platform::{
    Clock, Contents, CpuOps, Diagnostics, Host, Memory, Placed, Reach, Refused, Released, Topology, Wait, Workers,
};
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

const REFUSED: Refused = Refused { error: 12 };
/// Pageblocks that a heap may have.
const PAGEBLOCKS: usize = 6;
/// CPUs that threads run on.
const CPUS: usize = 2;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

/// Moves the calling thread to `cpu`.
pub fn run_on(cpu: usize) {
    CPU.set(cpu % CPUS);
}

pub struct Plain {
    /// Whether buckets are of CPUs, each with a lock for what elsewhere is a restartable section, or locked as a whole.
    lockless: bool,
    /// The mappings: address, layout, and bytes of it that are not unmapped yet.
    blocks: Mutex<Vec<(usize, Layout, usize)>>,
    cpus: [Mutex<()>; CPUS],
    clock: AtomicU64,
    pub misuses: Mutex<Vec<InvalidFree>>,
    stats: Stats,
    tunables: Tunables,
}

impl Plain {
    pub fn new(lockless: bool) -> Self {
        Self {
            lockless,
            blocks: Mutex::default(),
            cpus: Default::default(),
            clock: AtomicU64::new(1_000_000_000),
            misuses: Mutex::default(),
            stats: Stats::new(),
            tunables: Tunables::new(),
        }
    }

    pub fn pass_ms(&self, ms: u64) {
        self.clock.fetch_add(ms * 1_000_000, Relaxed);
    }

    fn take(&self, len: usize, align: Order) -> Option<usize> {
        let layout =
            Layout::from_size_align(len, align.pages().length()).ok().filter(|layout| layout.size() <= 64 << 20)?;
        // SAFETY: no window and no block is empty.
        let addr = unsafe { alloc_zeroed(layout) }.expose_provenance();
        (addr != 0).then(|| {
            self.blocks.lock().unwrap().push((addr, layout, len));
            addr
        })
    }

    fn on_cpu<R>(&self, table: &Table, f: impl FnOnce(*mut CpuSlab) -> R) -> R {
        let cpu = if self.lockless { CPU.get() } else { NO_CPU };
        let _section = self.cpus.get(cpu).map(|cpu| cpu.lock().unwrap());
        f(table.entry(cpu).load(Acquire))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        for (addr, layout, _) in self.blocks.get_mut().unwrap().drain(..) {
            // SAFETY: allocated by `take` with this layout; the heap, which used it, is being dropped.
            unsafe { dealloc(std::ptr::with_exposed_provenance_mut(addr), layout) };
        }
    }
}

fn wipe(run: Run) {
    // SAFETY: a part of what `take` allocated, which the engine does not use until this returns.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(run.addr).write_bytes(0, run.len) };
}

impl Host for Plain {
    fn release(&self, runs: &[Run], _calm: bool) -> Released {
        runs.iter().for_each(|&run| wipe(run));
        Released { runs: runs.len(), contents: Contents::Zero, error: 0 }
    }
}

impl Memory for Plain {
    fn window(&self, len: usize, align: Order, reach: Reach) -> Result<Run, Refused> {
        let len = match reach {
            Reach::Low32 => return Err(REFUSED),
            Reach::Any => PAGEBLOCKS * PAGEBLOCK,
            Reach::Apart => len,
        };
        self.take(len, align).map(|addr| Run { addr, len }).ok_or(REFUSED)
    }

    fn map_at(&self, _run: Run, _node: usize) -> Placed {
        Placed::Done
    }

    fn map(&self, len: usize, align: Order) -> Result<usize, Refused> {
        self.take(len, align).ok_or(REFUSED)
    }

    // Others may read it meanwhile, which a plain write must not race with.
    fn release_metadata(&self, _runs: &[Run]) -> bool {
        false
    }

    fn unmap(&self, run: Run) {
        let mut blocks = self.blocks.lock().unwrap();
        let inside = |(addr, layout, _): &(usize, Layout, usize)| *addr <= run.addr && run.addr < addr + layout.size();
        let i = blocks.iter().position(inside).expect("it is mapped");
        blocks[i].2 -= run.len;
        if blocks[i].2 == 0 {
            let (addr, layout, _) = blocks.swap_remove(i);
            // SAFETY: allocated by `take` with this layout, and all of it has been unmapped.
            unsafe { dealloc(std::ptr::with_exposed_provenance_mut(addr), layout) };
        }
    }

    /// Always moves, so that nobody relies on the old address.
    fn remap(&self, run: Run, len: usize) -> Result<usize, Refused> {
        let to = self.take(len, Order::PAGE).ok_or(REFUSED)?;
        let (old, new) = (std::ptr::with_exposed_provenance::<u8>(run.addr), std::ptr::with_exposed_provenance_mut(to));
        // SAFETY: two allocations of that many bytes; the caller has stopped using the old one.
        unsafe { std::ptr::copy_nonoverlapping(old, new, run.len.min(len)) };
        self.unmap(run);
        Ok(to)
    }

    fn huge_on_touch(&self) -> bool {
        false
    }

    fn advise_huge(&self, _run: Run) {}

    fn resident(&self, _run: Run) -> Option<usize> {
        None
    }
}

impl Clock for Plain {
    fn now(&self) -> Time {
        Time(self.clock.load(Relaxed))
    }
}

impl Topology for Plain {
    fn nodes(&self) -> usize {
        1
    }

    fn node(&self) -> usize {
        0
    }
}

impl Wait for Plain {
    // For no reason, which is allowed.
    fn wait(&self, _word: &AtomicU32, _expected: u32) {
        std::thread::yield_now();
    }

    /// Its time passes at once.
    fn wait_for(&self, _word: &AtomicU32, _expected: u32, ns: Option<u64>) {
        self.clock.fetch_add(ns.unwrap_or(1), Relaxed);
    }

    fn wake(&self, _word: &AtomicU32) {}

    fn held_ranks(&self) -> Option<&AtomicU32> {
        None
    }
}

impl Workers for Plain {
    fn wake_balancer(&self) {}

    fn wake_node_worker(&self, _node: usize, _cause: Cause, _severe: bool) {}
}

impl Diagnostics for Plain {
    fn invalid_free(&self, what: InvalidFree, _addr: usize, _size: usize) {
        self.misuses.lock().unwrap().push(what);
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }
}

impl CpuOps for Plain {
    fn lockless(&self) -> bool {
        self.lockless
    }

    fn cpu(&self) -> usize {
        CPU.get()
    }

    unsafe fn pop(&self, table: &Table, class: Class) -> *mut u8 {
        // SAFETY: the section's lock makes the slab this thread's; a drain fences before it touches the slab. That of no CPU
        // is the dummy, which is only read.
        self.on_cpu(table, |slab| unsafe { CpuSlab::pop(slab, class) })
    }

    unsafe fn push(&self, table: &Table, class: Class, object: *mut u8) -> Pushed {
        // SAFETY: as in `pop`.
        self.on_cpu(table, |slab| unsafe { CpuSlab::push(slab, class, object) })
    }

    unsafe fn push_batch(&self, table: &Table, class: Class, objects: &[*mut u8]) -> usize {
        // SAFETY: as in `pop`.
        self.on_cpu(table, |slab| unsafe { CpuSlab::push_batch(slab, class, objects) })
    }

    unsafe fn pop_batch(&self, table: &Table, class: Class, objects: &mut [*mut u8]) -> usize {
        self.on_cpu(table, |slab| {
            for (n, slot) in objects.iter_mut().enumerate() {
                // SAFETY: as in `pop`.
                *slot = unsafe { CpuSlab::pop(slab, class) };
                if slot.is_null() {
                    return n;
                }
            }
            objects.len()
        })
    }

    fn fence(&self) -> bool {
        self.cpus.iter().for_each(|cpu| drop(cpu.lock().unwrap()));
        true
    }
}
