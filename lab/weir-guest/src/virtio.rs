//! The parts of any virtio device, whatever bus it is on (virtio 1.0): feature bits, a status, queues,
//! configuration.

/// Bits of the device status.
pub mod status {
    /// The guest has seen the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The guest knows how to drive it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// Both agree on the features.
    pub const FEATURES_OK: u8 = 8;
    /// The device cannot go on without a reset.
    pub const NEEDS_RESET: u8 = 64;
    /// The driver gave the device up.
    pub const FAILED: u8 = 128;
}

/// Feature bit: the device follows virtio 1.0, not what was before it.
pub const VERSION_1: u64 = 1 << 32;

/// Where the parts of a queue are, as the device addresses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddresses {
    /// The descriptor table.
    pub descriptors: u64,
    /// The ring that the driver writes.
    pub available: u64,
    /// The ring that the device writes.
    pub used: u64,
}

/// A device's registers, and how it sees memory: what a driver needs of its bus.
pub trait Device {
    /// The features that the device offers.
    fn offered(&self) -> u64;
    /// Tells the device which of them the driver uses.
    fn accept(&self, features: u64);
    /// The device status.
    fn status(&self) -> u8;
    /// Sets the device status; 0 resets the device.
    fn set_status(&self, status: u8);
    /// Most entries that queue `queue` can have; 0: there is no such queue.
    fn queue_max(&self, queue: u16) -> u16;
    /// Gives queue `queue` its rings, of `size` entries, and enables it.
    fn enable_queue(&mut self, queue: u16, size: u16, at: QueueAddresses);
    /// Tells the device that queue `queue` has something new.
    fn notify(&self, queue: u16);
    /// Writes a 32-bit field of the device's own configuration; `false` if there is no such field.
    fn write_config(&self, offset: usize, value: u32) -> bool;
    /// The address under which the device finds the memory at `addr`.
    fn bus_address(&self, addr: usize) -> u64;
}
