//! A virtio 1.0 device on PCI: its capabilities say in which memory ranges its registers are.

use core::fmt;
use core::ptr;

use crate::pci::{self, ConfigSpace, Function};
use crate::virtio::{Device, QueueAddresses};
use weir_core::base::run::Run;

/// Vendor id of virtio devices.
pub const VENDOR: u16 = 0x1af4;
/// Device ids of a balloon: of its own since 1.0, and as a device that also speaks what was before.
pub const BALLOON: [u16; 2] = [0x1045, 0x1002];

/// Id of vendor-specific capabilities, which virtio's are.
const VENDOR_SPECIFIC: u8 = 0x09;
/// Kinds of register blocks.
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const DEVICE: u8 = 4;

/// Registers of the common block.
mod common {
    pub const DEVICE_FEATURE_SELECT: usize = 0;
    pub const DEVICE_FEATURE: usize = 4;
    pub const DRIVER_FEATURE_SELECT: usize = 8;
    pub const DRIVER_FEATURE: usize = 12;
    pub const NUM_QUEUES: usize = 18;
    pub const DEVICE_STATUS: usize = 20;
    pub const QUEUE_SELECT: usize = 22;
    pub const QUEUE_SIZE: usize = 24;
    pub const QUEUE_ENABLE: usize = 28;
    pub const QUEUE_NOTIFY_OFFSET: usize = 30;
    pub const QUEUE_DESCRIPTORS: usize = 32;
    pub const QUEUE_AVAILABLE: usize = 40;
    pub const QUEUE_USED: usize = 48;
    pub const LENGTH: usize = 56;
}

/// A device's blocks of registers, by bus address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    common: Run,
    notify: Run,
    notify_multiplier: usize,
    /// Empty if the device has no configuration of its own.
    device: Run,
}

/// Why a function cannot be driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The function has no block of this kind, or not where it can be reached: a device from before virtio
    /// 1.0.
    Missing(&'static str),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Missing(what) = self;
        write!(f, "the device has no {what} registers in memory: it is older than virtio 1.0")
    }
}

impl Layout {
    /// Reads where the registers of `function` are. The first usable block of a kind is the preferred one.
    pub fn read(space: &impl ConfigSpace, function: Function) -> Result<Self, LayoutError> {
        let mut layout = Self::default();
        for at in pci::capabilities(space, function, VENDOR_SPECIFIC) {
            let kind = (space.read(function, at) >> 24) as u8;
            let bar = space.read(function, at + 4) as u8;
            let offset = space.read(function, at + 8) as usize;
            let len = space.read(function, at + 12) as usize;
            let Some(base) = pci::memory_range(space, function, bar) else { continue };
            let run = Run { addr: base as usize + offset, len };
            match kind {
                COMMON if layout.common.len == 0 && len >= common::LENGTH => layout.common = run,
                NOTIFY if layout.notify.len == 0 => {
                    layout.notify = run;
                    layout.notify_multiplier = space.read(function, at + 16) as usize;
                }
                DEVICE if layout.device.len == 0 => layout.device = run,
                _ => {}
            }
        }
        match (layout.common.len, layout.notify.len) {
            (0, _) => Err(LayoutError::Missing("common")),
            (_, 0) => Err(LayoutError::Missing("notification")),
            _ => Ok(layout),
        }
    }

    /// The blocks, for whoever has to map them.
    pub fn blocks(&self) -> [Run; 3] {
        [self.common, self.notify, self.device]
    }
}

/// The device. Memory is identity-mapped: an address is the same for guest and device.
pub struct PciDevice {
    layout: Layout,
    /// Offset of the notification register of the enabled queue.
    notify_at: usize,
}

impl PciDevice {
    /// # Safety
    /// The blocks of `layout` are device registers, mapped at their bus addresses, and nobody else uses them.
    pub unsafe fn new(layout: Layout) -> Self {
        Self { layout, notify_at: 0 }
    }

    fn at<T>(&self, register: usize) -> *mut T {
        (self.layout.common.addr + register) as *mut T
    }

    fn read16(&self, register: usize) -> u16 {
        // SAFETY: a register of the common block (see `new`).
        unsafe { ptr::read_volatile(self.at(register)) }
    }

    fn write16(&self, register: usize, value: u16) {
        // SAFETY: a register of the common block (see `new`).
        unsafe { ptr::write_volatile(self.at(register), value) }
    }

    fn read32(&self, register: usize) -> u32 {
        // SAFETY: a register of the common block (see `new`).
        unsafe { ptr::read_volatile(self.at(register)) }
    }

    fn write32(&self, register: usize, value: u32) {
        // SAFETY: a register of the common block (see `new`).
        unsafe { ptr::write_volatile(self.at(register), value) }
    }

    /// 64-bit registers may be written in halves, and on some buses must be.
    fn write64(&self, register: usize, value: u64) {
        self.write32(register, value as u32);
        self.write32(register + 4, (value >> 32) as u32);
    }
}

impl Device for PciDevice {
    fn offered(&self) -> u64 {
        let half = |select| {
            self.write32(common::DEVICE_FEATURE_SELECT, select);
            u64::from(self.read32(common::DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn accept(&self, features: u64) {
        for (select, half) in [features as u32, (features >> 32) as u32].into_iter().enumerate() {
            self.write32(common::DRIVER_FEATURE_SELECT, select as u32);
            self.write32(common::DRIVER_FEATURE, half);
        }
    }

    fn status(&self) -> u8 {
        // SAFETY: a register of the common block (see `new`).
        unsafe { ptr::read_volatile(self.at(common::DEVICE_STATUS)) }
    }

    fn set_status(&self, status: u8) {
        // SAFETY: a register of the common block (see `new`).
        unsafe { ptr::write_volatile(self.at(common::DEVICE_STATUS), status) }
    }

    fn queue_max(&self, queue: u16) -> u16 {
        if queue >= self.read16(common::NUM_QUEUES) {
            return 0;
        }
        self.write16(common::QUEUE_SELECT, queue);
        self.read16(common::QUEUE_SIZE)
    }

    fn enable_queue(&mut self, queue: u16, size: u16, at: QueueAddresses) {
        self.write16(common::QUEUE_SELECT, queue);
        self.write16(common::QUEUE_SIZE, size);
        self.write64(common::QUEUE_DESCRIPTORS, at.descriptors);
        self.write64(common::QUEUE_AVAILABLE, at.available);
        self.write64(common::QUEUE_USED, at.used);
        self.notify_at = usize::from(self.read16(common::QUEUE_NOTIFY_OFFSET)) * self.layout.notify_multiplier;
        assert!(self.notify_at + 2 <= self.layout.notify.len, "the queue's notification register is out of range");
        self.write16(common::QUEUE_ENABLE, 1);
    }

    fn notify(&self, queue: u16) {
        let register = (self.layout.notify.addr + self.notify_at) as *mut u16;
        // SAFETY: inside the notification block (`enable_queue` checked it).
        unsafe { ptr::write_volatile(register, queue) }
    }

    fn write_config(&self, offset: usize, value: u32) -> bool {
        if offset + 4 > self.layout.device.len {
            return false;
        }
        let register = (self.layout.device.addr + offset) as *mut u32;
        // SAFETY: inside the device's own block.
        unsafe { ptr::write_volatile(register, value) }
        true
    }

    fn bus_address(&self, addr: usize) -> u64 {
        addr as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::tests::Bus;

    const AT: Function = Function { bus: 0, device: 3, function: 0 };

    fn bus(blocks: &[(u8, u32, u32)]) -> Bus {
        let mut regs = [0u32; 64];
        (regs[0], regs[1], regs[0x34 / 4]) = (0x1045_1af4, 0x0010_0000, 0x40);
        (regs[4], regs[8]) = (0xc001, 0xfe00_000c);
        for (i, &(kind, offset, len)) in blocks.iter().enumerate() {
            let at = 0x40 + i * 0x18;
            let next = if i + 1 < blocks.len() { at + 0x18 } else { 0 };
            regs[at / 4] = u32::from(kind) << 24 | 0x18 << 16 | (next as u32) << 8 | 0x09;
            regs[at / 4 + 1..at / 4 + 5].copy_from_slice(&[4, offset, len, 4]);
        }
        let bus = Bus::default();
        bus.0.borrow_mut().insert((0, 3, 0), regs);
        bus
    }

    #[test]
    fn register_blocks_are_found_and_the_first_of_a_kind_wins() {
        let bus = bus(&[(COMMON, 0, 56), (3, 0x1000, 4), (DEVICE, 0x2000, 16), (NOTIFY, 0x3000, 64), (COMMON, 9, 56)]);
        let layout = Layout::read(&bus, AT).unwrap();
        let run = |addr, len| Run { addr, len };
        let expected = [run(0xfe00_0000, 56), run(0xfe00_3000, 64), run(0xfe00_2000, 16)];
        assert_eq!(layout.blocks(), expected);
        assert_eq!(layout.notify_multiplier, 4);
    }

    #[test]
    fn a_device_from_before_says_what_is_missing() {
        assert_eq!(Layout::read(&bus(&[]), AT), Err(LayoutError::Missing("common")));
        assert_eq!(Layout::read(&bus(&[(COMMON, 0, 56)]), AT), Err(LayoutError::Missing("notification")));
        assert_eq!(Layout::read(&bus(&[(COMMON, 0, 20)]), AT), Err(LayoutError::Missing("common")));
    }

    #[test]
    fn registers_are_where_the_specification_has_them() {
        let memory = Box::leak(Box::new([0u64; 32]));
        let base = memory.as_mut_ptr() as usize;
        let run = |offset, len| Run { addr: base + offset, len };
        let layout = Layout { common: run(0, 56), notify: run(64, 64), notify_multiplier: 4, device: run(128, 16) };
        // SAFETY: plain memory stands in for the registers, and is this test's.
        let mut device = unsafe { PciDevice::new(layout) };
        let read = |offset: usize| {
            // SAFETY: inside the test's memory.
            unsafe { ((base + offset) as *const u32).read_volatile() }
        };
        device.write16(common::QUEUE_NOTIFY_OFFSET, 3);
        device.write16(common::NUM_QUEUES, 5);
        device.write16(common::QUEUE_SIZE, 32);
        assert_eq!((device.queue_max(4), device.queue_max(5)), (32, 0));
        device.enable_queue(4, 16, QueueAddresses { descriptors: 1 << 33 | 7, available: 8, used: 9 });
        assert_eq!([read(20) >> 16, read(24), read(28)], [4, 16, 3 << 16 | 1]);
        assert_eq!([read(32), read(36), read(40), read(48)], [7, 2, 8, 9]);
        device.notify(4);
        assert_eq!(read(64 + 12), 4);
        assert!(device.write_config(12, 77) && !device.write_config(16, 77));
        assert_eq!(read(128 + 12), 77);
        device.set_status(15);
        assert_eq!((device.status(), device.bus_address(42)), (15, 42));
        device.accept(1 << 32 | 2);
        assert_eq!([read(8), read(12)], [1, 1]);
    }
}
