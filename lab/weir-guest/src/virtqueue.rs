//! A split virtqueue with one request in flight at a time, which is all that a report needs.
//!
//! A request is a chain of descriptors from number 0. Its head goes into the available ring, and the device puts it
//! into the used ring when it is done. Descriptors are not recycled by a free list: there is only ever one chain.

use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use crate::virtio::{Device, QueueAddresses};

/// Most entries that a queue here has (the size of QEMU's reporting queue, and Linux's batch).
pub const SIZE: usize = 32;

const _: () = assert!(cfg!(target_endian = "little"), "virtio 1.0 is little-endian, and nothing is swapped here");

/// Descriptor flag: another one follows.
const NEXT: u16 = 1;
/// Descriptor flag: the device may write there.
const WRITE: u16 = 2;
/// Available-ring flag: the driver polls and wants no interrupts.
const NO_INTERRUPT: u16 = 1;

#[repr(C)]
struct Descriptor {
    addr: AtomicU64,
    len: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

#[repr(C)]
struct Available {
    flags: AtomicU16,
    idx: AtomicU16,
    ring: [AtomicU16; SIZE],
    used_event: AtomicU16,
}

#[repr(C)]
struct UsedElement {
    id: AtomicU32,
    len: AtomicU32,
}

#[repr(C, align(4))]
struct Used {
    flags: AtomicU16,
    idx: AtomicU16,
    ring: [UsedElement; SIZE],
    available_event: AtomicU16,
}

/// The memory that driver and device share. Atomics, because the other side writes at any time.
#[repr(C, align(4096))]
pub struct Ring {
    descriptors: [Descriptor; SIZE],
    available: Available,
    used: Used,
}

impl Ring {
    /// All zero, as a queue begins.
    #[allow(clippy::new_without_default, reason = "const, and only ever a static")]
    pub const fn new() -> Self {
        Self {
            descriptors: [const {
                Descriptor {
                    addr: AtomicU64::new(0),
                    len: AtomicU32::new(0),
                    flags: AtomicU16::new(0),
                    next: AtomicU16::new(0),
                }
            }; SIZE],
            available: Available {
                flags: AtomicU16::new(NO_INTERRUPT),
                idx: AtomicU16::new(0),
                ring: [const { AtomicU16::new(0) }; SIZE],
                used_event: AtomicU16::new(0),
            },
            used: Used {
                flags: AtomicU16::new(0),
                idx: AtomicU16::new(0),
                ring: [const { UsedElement { id: AtomicU32::new(0), len: AtomicU32::new(0) } }; SIZE],
                available_event: AtomicU16::new(0),
            },
        }
    }
}

/// The device put something into the used ring that it was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confused;

/// The driver's side of a queue.
pub struct Queue {
    ring: &'static Ring,
    size: u16,
    /// Requests made so far, modulo 2^16: what both rings' indices are when nothing is in flight.
    requests: u16,
}

impl Queue {
    /// A queue of at most `max` entries (what the device allows) over `ring`; `None` if it allows none.
    pub fn new(ring: &'static Ring, max: u16) -> Option<Self> {
        // A split ring's size is a power of two, and the driver may choose a smaller one than offered.
        let size = (max.min(SIZE as u16)).checked_ilog2().map(|log| 1 << log)?;
        ring.available.flags.store(NO_INTERRUPT, Relaxed);
        ring.available.idx.store(0, Relaxed);
        ring.used.idx.store(0, Relaxed);
        Some(Self { ring, size, requests: 0 })
    }

    /// Entries that one request can have.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Where the rings are, as `device` sees memory.
    pub fn addresses(&self, device: &impl Device) -> QueueAddresses {
        QueueAddresses {
            descriptors: device.bus_address((&raw const self.ring.descriptors) as usize),
            available: device.bus_address((&raw const self.ring.available) as usize),
            used: device.bus_address((&raw const self.ring.used) as usize),
        }
    }

    /// Makes the (address, length) pairs `entries` available to the device, as memory that it may write.
    /// Nothing is in flight; there are 1 to [`Queue::size`] entries. The caller then notifies the device.
    pub fn submit(&mut self, entries: impl ExactSizeIterator<Item = (u64, u32)>) {
        let count = entries.len();
        assert!((1..=usize::from(self.size)).contains(&count), "a request of {count} entries");
        for (i, (addr, len)) in entries.enumerate() {
            let descriptor = &self.ring.descriptors[i];
            let more = i + 1 < count;
            descriptor.addr.store(addr, Relaxed);
            descriptor.len.store(len, Relaxed);
            descriptor.flags.store(if more { WRITE | NEXT } else { WRITE }, Relaxed);
            descriptor.next.store(if more { i as u16 + 1 } else { 0 }, Relaxed);
        }
        self.ring.available.ring[usize::from(self.requests % self.size)].store(0, Relaxed);
        self.requests = self.requests.wrapping_add(1);
        // Whoever sees the new index sees the chain, and what the memory was filled with.
        self.ring.available.idx.store(self.requests, Release);
        // The notification must not overtake the index.
        fence(SeqCst);
    }

    /// Whether the device is done with the request.
    pub fn is_done(&self) -> Result<bool, Confused> {
        let used = self.ring.used.idx.load(Acquire);
        if used == self.requests.wrapping_sub(1) {
            return Ok(false);
        }
        let element = &self.ring.used.ring[usize::from(self.requests.wrapping_sub(1) % self.size)];
        if used == self.requests && element.id.load(Relaxed) == 0 { Ok(true) } else { Err(Confused) }
    }
}
