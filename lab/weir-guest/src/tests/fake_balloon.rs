//! A balloon for tests: a device in the same process that walks the ring as a real one does and wipes what it takes.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::balloon::feature;
use crate::virtio::{Device, QueueAddresses, status};
use crate::virtqueue::Ring;
use weir_core::base::run::Run;

/// A fault of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    RefusesFeatures,
    NoQueue,
    Silent,
    WrongAnswer,
}

#[derive(Default)]
struct State {
    accepted: Cell<u64>,
    status: Cell<u8>,
    queue: Cell<Option<(u16, u16, QueueAddresses)>>,
    poison: Cell<u32>,
    /// Requests taken.
    seen: Cell<u16>,
    reports: RefCell<Vec<Vec<Run>>>,
}

/// The device; clones are the same device, so that a test keeps one to look at.
#[derive(Clone)]
pub struct Fake {
    offered: u64,
    max: u16,
    delay: usize,
    fault: Option<Fault>,
    leaves_contents: bool,
    state: Rc<State>,
}

/// A clock that goes on by a tenth of a second at each look.
pub fn clock() -> u64 {
    thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });
    NOW.set(NOW.get() + 100_000_000);
    NOW.get()
}

/// A ring of a test's own.
pub fn fresh_ring() -> &'static Ring {
    Box::leak(Box::new(Ring::new()))
}

/// `len` zero bytes at a multiple of 4 MiB, for good.
pub fn memory(len: usize) -> (usize, usize) {
    let layout = Layout::from_size_align(len, 4 << 20).unwrap();
    // SAFETY: the length is not 0.
    let at = unsafe { alloc_zeroed(layout) };
    if at.is_null() {
        handle_alloc_error(layout);
    }
    (at as usize, len)
}

impl Fake {
    pub fn new(offered: u64) -> Self {
        let state = State { poison: Cell::new(0xaaaa_aaaa), ..State::default() };
        Self { offered, max: 32, delay: 0, fault: None, leaves_contents: false, state: Rc::new(state) }
    }

    pub fn with(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Acknowledges and takes nothing, as QEMU does with what it cannot discard.
    pub fn leaves_contents(mut self) -> Self {
        self.leaves_contents = true;
        self
    }

    pub fn ring(mut self, max: u16) -> Self {
        self.max = max;
        self
    }

    /// Serves each request on a thread of its own, this many microseconds later.
    pub fn slow(mut self, delay: usize) -> Self {
        self.delay = delay;
        self
    }

    pub fn accepted(&self) -> u64 {
        self.state.accepted.get()
    }

    pub fn poison(&self) -> Option<u32> {
        (self.offered & feature::PAGE_POISON != 0).then(|| self.state.poison.get())
    }

    pub fn take_reports(&self) -> Vec<Vec<Run>> {
        self.state.reports.take()
    }

    fn reporting_queue(&self) -> u16 {
        2 + (self.offered & (feature::STATS_QUEUE | feature::FREE_PAGE_HINT)).count_ones() as u16
    }

    /// The byte that discarded memory reads as: zero as QEMU's does, unless nothing was agreed on.
    fn fill(&self) -> u8 {
        if self.accepted() & feature::PAGE_POISON != 0 { 0 } else { 0xdd }
    }
}

/// Walks one chain: the blocks that it names.
///
/// # Safety
/// `at` is the place of a live queue of `size` entries.
unsafe fn walk(at: QueueAddresses, size: u16, request: u16) -> Vec<Run> {
    // SAFETY: as the caller promises; offsets are those of virtio's split ring.
    unsafe {
        let idx = (at.available as *const u16).add(1).read_volatile();
        assert_eq!(idx, request.wrapping_add(1), "one request at a time");
        let slot = usize::from(request % size);
        let mut id = (at.available as *const u16).add(2 + slot).read_volatile();
        let mut runs = Vec::new();
        loop {
            assert!(id < size && runs.len() < usize::from(size));
            let descriptor = (at.descriptors as *const u8).add(usize::from(id) * 16);
            let addr = descriptor.cast::<u64>().read_volatile() as usize;
            let len = descriptor.add(8).cast::<u32>().read_volatile() as usize;
            let flags = descriptor.add(12).cast::<u16>().read_volatile();
            assert!(flags & 2 != 0, "QEMU takes blocks from device-writable descriptors only");
            runs.push(Run { addr, len });
            if flags & 1 == 0 {
                return runs;
            }
            id = descriptor.add(14).cast::<u16>().read_volatile();
        }
    }
}

impl Device for Fake {
    fn offered(&self) -> u64 {
        self.offered
    }

    fn accept(&self, features: u64) {
        assert_eq!(features & !self.offered, 0, "accepted what was not offered");
        self.state.accepted.set(features);
    }

    fn status(&self) -> u8 {
        self.state.status.get()
    }

    fn set_status(&self, new: u8) {
        let keeps = new != 0 && self.fault == Some(Fault::RefusesFeatures);
        self.state.status.set(if keeps { new & !status::FEATURES_OK } else { new });
        if new == 0 {
            self.state.queue.set(None);
            self.state.seen.set(0);
        }
    }

    fn queue_max(&self, queue: u16) -> u16 {
        if self.fault == Some(Fault::NoQueue) || queue > self.reporting_queue() { 0 } else { self.max }
    }

    fn enable_queue(&mut self, queue: u16, size: u16, at: QueueAddresses) {
        assert!(size.is_power_of_two() && size <= self.max);
        assert!(self.status() & status::DRIVER_OK == 0, "queues are set up before DRIVER_OK");
        self.state.queue.set(Some((queue, size, at)));
    }

    fn notify(&self, queue: u16) {
        let (index, size, at) = self.state.queue.get().expect("a queue is enabled before it is notified");
        assert_eq!(queue, index);
        assert_eq!(queue, self.reporting_queue(), "reports go to the reporting queue");
        assert!(self.status() & status::DRIVER_OK != 0, "no notification before DRIVER_OK");
        let request = self.state.seen.get();
        self.state.seen.set(request.wrapping_add(1));
        // SAFETY: the driver's ring lives on.
        let runs = unsafe { walk(at, size, request) };
        self.state.reports.borrow_mut().push(runs.clone());
        if self.fault == Some(Fault::Silent) {
            return;
        }
        let id = if self.fault == Some(Fault::WrongAnswer) { 9 } else { 0 };
        let (fill, delay, wipes) = (self.fill(), self.delay, !self.leaves_contents);
        let serve = move || {
            std::thread::sleep(std::time::Duration::from_micros(delay as u64));
            // SAFETY: the driver promised that nobody uses these blocks until the answer, and its ring lives on.
            unsafe {
                runs.iter().filter(|_| wipes).for_each(|run| std::ptr::write_bytes(run.addr as *mut u8, fill, run.len));
                let element = (at.used as *mut u8).add(4 + usize::from(request % size) * 8);
                element.cast::<u32>().write_volatile(id);
                let idx = std::sync::atomic::AtomicU16::from_ptr((at.used as *mut u16).add(1));
                idx.store(request.wrapping_add(1), std::sync::atomic::Ordering::Release);
            }
        };
        if delay > 0 {
            std::thread::spawn(serve);
        } else {
            serve();
        }
    }

    fn write_config(&self, offset: usize, value: u32) -> bool {
        assert_eq!(offset, 12, "only poison_val is written");
        self.state.poison.set(value);
        true
    }

    fn bus_address(&self, addr: usize) -> u64 {
        addr as u64
    }
}
