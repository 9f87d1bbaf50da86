//! The engine's platform on bare metal: one CPU without interrupts, physical memory at its own addresses.
//!
//! Its memory is [`crate::guest_memory`].

use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed},
};

use crate::balloon::ReportError;
use crate::frames::Frames;
use crate::guest_memory::{GuestMemory, NO_FRAMES};
use crate::one_cpu::OneCpu;
use crate::reporter::{Counters, Reporter};
use crate::virtio::Device;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::run::Run;
use weir_core::base::time::Time;
use weir_core::base::units::{Class, Order, PAGEBLOCK};
use weir_core::platform::cpu_table::{CpuSlab, Pushed, Table};
use weir_core::platform::{
    Clock, Contents, CpuOps, Diagnostics, Host, Memory, Placed, Reach, Refused, Released, Topology, Wait, Workers,
};
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

/// The platform.
pub struct Machine<D: Device> {
    memory: OneCpu<GuestMemory<D>>,
    /// The engine has something to do.
    noticed: AtomicBool,
    clock: fn() -> u64,
    ranks: AtomicU32,
    stats: Stats,
    tunables: Tunables,
}

impl<D: Device> Machine<D> {
    /// A machine without memory; `clock` gives nanoseconds.
    ///
    /// # Safety
    /// Only one thread of execution uses it.
    pub const unsafe fn new(clock: fn() -> u64) -> Self {
        let memory = GuestMemory::none();
        Self {
            // SAFETY: as the caller promises.
            memory: unsafe { OneCpu::new(memory) },
            noticed: AtomicBool::new(false),
            clock,
            ranks: AtomicU32::new(0),
            stats: Stats::new(),
            tunables: Tunables::new(),
        }
    }

    /// Gives the machine its memory and, if there is one, its reporter.
    ///
    /// # Safety
    /// The free pages of `frames` are mapped at their addresses, and nobody uses them.
    pub unsafe fn start(&self, frames: Frames, reporter: Option<Reporter<D>>) {
        self.tunables.report.set(reporter.is_some().into());
        // The balancer runs where the guest's loop says so, never inside an allocation.
        self.tunables.background.set(1);
        // SAFETY: as the caller promises.
        *self.memory.get() = unsafe { GuestMemory::new(frames, reporter) };
    }

    /// The reporter's totals.
    pub fn counters(&self) -> Counters {
        self.memory.get().reporter().map_or_else(Counters::default, Reporter::counters)
    }

    /// Why reporting ended, if it did.
    pub fn failure(&self) -> Option<ReportError> {
        self.memory.get().reporter().and_then(Reporter::failure)
    }

    /// Whether the engine asked for its balancer since the last call.
    pub fn take_notice(&self) -> bool {
        self.noticed.swap(false, Relaxed)
    }
}

impl<D: Device> Host for Machine<D> {
    fn release(&self, runs: &[Run], _calm: bool) -> Released {
        let mut memory = self.memory.get();
        let Some(reporter) = memory.reporter_mut() else {
            return Released { runs: 0, contents: Contents::Zero, error: 0 };
        };
        // SAFETY: the engine isolated the runs: nobody uses them until this returns.
        let runs = unsafe { reporter.report(runs) };
        if reporter.failure().is_some() {
            self.tunables.report.set(0);
        }
        Released { runs, contents: reporter.contents(), error: 0 }
    }

    /// Smaller ones would split the host's huge pages.
    fn release_unit(&self) -> usize {
        PAGEBLOCK
    }
}

impl<D: Device> Memory for Machine<D> {
    fn window(&self, len: usize, align: Order, reach: Reach) -> Result<Run, Refused> {
        // Nothing here wants short pointers.
        if reach == Reach::Low32 { Err(NO_FRAMES) } else { self.memory.get().window(len, align.pages().length()) }
    }

    fn map_at(&self, run: Run, _node: usize) -> Placed {
        if self.memory.get().map_at(run) { Placed::Done } else { Placed::Occupied }
    }

    fn map(&self, len: usize, align: Order) -> Result<usize, Refused> {
        self.memory.get().map(len, align.pages().length())
    }

    fn unmap(&self, run: Run) {
        self.memory.get().unmap(run);
    }

    fn remap(&self, run: Run, len: usize) -> Result<usize, Refused> {
        self.memory.get().remap(run, len)
    }

    fn advise_huge(&self, _run: Run) {}

    /// The device does not say what the host backs.
    fn resident(&self, _run: Run) -> Option<usize> {
        None
    }

    /// The host decides what backs a block. But the host can back it with a huge page as long as the block is
    /// not reported in part. To say so keeps the engine from doing that in calm times.
    fn huge_on_touch(&self) -> bool {
        true
    }
}

impl<D: Device> Clock for Machine<D> {
    fn now(&self) -> Time {
        Time((self.clock)())
    }
}

impl<D: Device> Topology for Machine<D> {
    fn nodes(&self) -> usize {
        1
    }

    fn node(&self) -> usize {
        0
    }
}

impl<D: Device> Wait for Machine<D> {
    fn wait(&self, _word: &AtomicU32, _expected: u32) {
        panic!("a lock is waited for on the only CPU: whoever holds it is the caller");
    }

    fn wake(&self, _word: &AtomicU32) {}

    fn held_ranks(&self) -> Option<&AtomicU32> {
        Some(&self.ranks)
    }
}

impl<D: Device> Workers for Machine<D> {
    fn wake_balancer(&self) {
        self.noticed.store(true, Relaxed);
    }
}

impl<D: Device> Diagnostics for Machine<D> {
    fn invalid_free(&self, what: InvalidFree, addr: usize, class_size: usize) {
        panic!("{what}: {addr:#x} (size class {class_size})");
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }
}

impl<D: Device> CpuOps for Machine<D> {
    fn lockless(&self) -> bool {
        true
    }

    fn cpu(&self) -> usize {
        0
    }

    unsafe fn pop(&self, table: &Table, class: Class) -> *mut u8 {
        // SAFETY: the table's slabs live on (the caller's promise); nothing else runs meanwhile.
        unsafe { CpuSlab::pop(table.entry(0).load(Acquire), class) }
    }

    unsafe fn push(&self, table: &Table, class: Class, object: *mut u8) -> Pushed {
        // SAFETY: as in `pop`.
        unsafe { CpuSlab::push(table.entry(0).load(Acquire), class, object) }
    }

    unsafe fn push_batch(&self, table: &Table, class: Class, objects: &[*mut u8]) -> usize {
        // SAFETY: as in `pop`.
        unsafe { CpuSlab::push_batch(table.entry(0).load(Acquire), class, objects) }
    }

    unsafe fn pop_batch(&self, table: &Table, class: Class, objects: &mut [*mut u8]) -> usize {
        for (n, slot) in objects.iter_mut().enumerate() {
            // SAFETY: as in `pop`.
            *slot = unsafe { self.pop(table, class) };
            if slot.is_null() {
                return n;
            }
        }
        objects.len()
    }

    fn fence(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balloon::{Balloon, feature};
    use crate::tests::fake_balloon::{Fake, clock, fresh_ring, memory};
    use crate::virtio::VERSION_1;
    use core::sync::atomic::AtomicU64;
    use weir_core::base::cause::Cause;
    use weir_core::base::level::Level;
    use weir_core::base::units::PAGE;
    use weir_core::heap::Heap;

    const ALL: u64 = VERSION_1 | feature::PAGE_REPORTING | feature::PAGE_POISON | feature::STATS_QUEUE;

    /// A heap on 96 MiB whose first word of each page is not zero at the start.
    fn heap(fake: &Fake) -> &'static Heap<Machine<Fake>> {
        let (addr, len) = memory(96 << 20);
        for page in (addr..addr + len).step_by(PAGE) {
            // SAFETY: this test's memory.
            unsafe { *(page as *mut u64) = 0x5555 };
        }
        let bits = Box::leak((0..len / PAGE / 64).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>());
        let mut frames = Frames::new(addr, bits);
        frames.give(Run { addr, len });
        // SAFETY: the ring is fresh, the device and the memory are this test's, which is one thread.
        unsafe {
            let heap = Box::leak(Box::new(Heap::new(Machine::new(clock))));
            let balloon = Balloon::start(fake.clone(), fresh_ring()).unwrap();
            heap.platform().start(frames, Some(Reporter::new(balloon, clock)));
            heap
        }
    }

    /// Blocks of many sizes, each filled with its own byte.
    fn fill(heap: &Heap<Machine<Fake>>, count: usize) -> Vec<(*mut u8, usize, u8)> {
        let sizes = [40, 500, 4096, 30_000, 100_000, 700_000, 3 << 20, 5 << 20];
        let mut blocks = Vec::new();
        for i in 0..count {
            let (size, byte) = (sizes[i % sizes.len()], i as u8 | 1);
            let block = heap.alloc(size);
            assert!(!block.is_null());
            // SAFETY: the block is that long.
            unsafe { block.write_bytes(byte, size) };
            blocks.push((block, size, byte));
        }
        blocks
    }

    fn intact(blocks: &[(*mut u8, usize, u8)]) -> bool {
        // SAFETY: the blocks are in use and that long.
        let bytes = |&(block, size, _)| unsafe { core::slice::from_raw_parts(block as *const u8, size) };
        blocks.iter().all(|block| bytes(block).iter().all(|&b| b == block.2))
    }

    #[test]
    fn what_is_free_is_reported_whole_and_what_is_in_use_stays() {
        let fake = Fake::new(ALL);
        let heap = heap(&fake);
        let kept = fill(heap, 8);
        for _ in 0..3 {
            let freed = fill(heap, 40);
            let more = fill(heap, 3);
            // SAFETY: the blocks are this test's, and freed once.
            freed.iter().for_each(|&(block, ..)| unsafe { heap.free(block) });
            assert!(heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure) >= 32 << 20);
            let reports: Vec<_> = fake.take_reports().into_iter().flatten().collect();
            assert!(reports.iter().all(|r| r.addr.is_multiple_of(PAGEBLOCK) && r.len.is_multiple_of(PAGEBLOCK)));
            assert!(reports.iter().map(|r| r.len).sum::<usize>() >= 32 << 20);
            assert!(intact(&kept) && intact(&more));
            // SAFETY: as above.
            more.iter().for_each(|&(block, ..)| unsafe { heap.free(block) });
            heap.audit().unwrap();
        }
        let zero = heap.alloc_zeroed(3 << 20);
        // SAFETY: the block is that long and page-aligned.
        assert!(unsafe { crate::zero::is_zero(Run { addr: zero as usize, len: 3 << 20 }) });
        assert!(intact(&kept));
    }

    #[test]
    fn without_page_poison_memory_that_comes_back_is_not_taken_for_zero() {
        let fake = Fake::new(ALL & !feature::PAGE_POISON).leaves_contents();
        let heap = heap(&fake);
        let blocks = fill(heap, 60);
        // SAFETY: the blocks are this test's, and freed once.
        blocks.iter().for_each(|&(block, ..)| unsafe { heap.free(block) });
        assert!(heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure) >= 32 << 20);
        for _ in 0..8 {
            let zero = heap.alloc_zeroed(3 << 20);
            // SAFETY: the block is that long and page-aligned.
            assert!(unsafe { crate::zero::is_zero(Run { addr: zero as usize, len: 3 << 20 }) });
        }
        heap.audit().unwrap();
    }

    #[test]
    fn calm_windows_return_memory_too_and_full_memory_is_an_answer() {
        let fake = Fake::new(ALL);
        let heap = heap(&fake);
        let blocks: Vec<_> = core::iter::repeat_with(|| heap.alloc(1 << 20)).take_while(|b| !b.is_null()).collect();
        assert!(blocks.len() > 60, "{} MiB of 96 could be had", blocks.len());
        // SAFETY: the blocks are this test's, and freed once.
        blocks.iter().for_each(|&block| unsafe { heap.free(block) });
        assert!(heap.platform().take_notice());
        for _ in 0..20 {
            if !heap.reclaim().balance_calm() {
                break;
            }
        }
        let counters = heap.platform().counters();
        assert!(counters.bytes >= 60 << 20, "{counters:?}");
        assert_eq!(counters.refused, 0, "whole blocks only are offered in calm times");
        heap.audit().unwrap();
    }
}
