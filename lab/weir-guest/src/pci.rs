//! PCI configuration space: finding a function, where its address ranges are, what its capabilities say.

/// A function on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Bus number.
    pub bus: u8,
    /// Device number, below 32.
    pub device: u8,
    /// Function number, below 8.
    pub function: u8,
}

/// Access to configuration space, 32 bits at a time.
pub trait ConfigSpace {
    /// Reads the register at `offset`, a multiple of 4; all ones where there is no such function.
    fn read(&self, function: Function, offset: u8) -> u32;
    /// Writes the register at `offset`.
    fn write(&self, function: Function, offset: u8, value: u32);
}

const ID: u8 = 0x00;
const COMMAND: u8 = 0x04;
const HEADER_TYPE: u8 = 0x0c;
const BAR0: u8 = 0x10;
const CAPABILITIES: u8 = 0x34;

/// Command bits: decode memory accesses; act as a bus master (that is, reach the guest's memory).
const MEMORY_AND_MASTER: u32 = 0b110;
/// Status bit (upper half of the command register): there is a list of capabilities.
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Capabilities that fit the space: a list that is longer goes in a circle.
const MOST_CAPABILITIES: usize = 48;

/// The first function of vendor `vendor` whose device id is one of `devices`.
pub fn find(space: &impl ConfigSpace, vendor: u16, devices: &[u16]) -> Option<Function> {
    all(space).find(|&function| {
        let id = space.read(function, ID);
        id as u16 == vendor && devices.contains(&((id >> 16) as u16))
    })
}

fn all(space: &impl ConfigSpace) -> impl Iterator<Item = Function> {
    let slots = (0..=u8::MAX).flat_map(|bus| (0..32).map(move |device| (bus, device)));
    slots.flat_map(move |(bus, device)| {
        let first = Function { bus, device, function: 0 };
        let there = space.read(first, ID) as u16 != u16::MAX;
        let many = there && space.read(first, HEADER_TYPE) >> 16 & 0x80 != 0;
        let count = if many { 8 } else { u8::from(there) };
        (0..count).map(move |function| Function { function, ..first })
    })
}

/// Lets the function answer memory accesses and make its own.
pub fn enable(space: &impl ConfigSpace, function: Function) {
    // The upper half is the status, where writing a 1 clears a bit.
    let command = space.read(function, COMMAND) & 0xffff;
    space.write(function, COMMAND, command | MEMORY_AND_MASTER);
}

/// Address of a function's memory range; `None` if it is in port space, unassigned, or not there.
pub fn memory_range(space: &impl ConfigSpace, function: Function, bar: u8) -> Option<u64> {
    if bar > 5 {
        return None;
    }
    let low = space.read(function, BAR0 + bar * 4);
    if low & 1 == 1 {
        return None;
    }
    let wide = low >> 1 & 3 == 2;
    let high = if wide && bar < 5 { space.read(function, BAR0 + bar * 4 + 4) } else { 0 };
    let addr = u64::from(high) << 32 | u64::from(low & !0xf);
    (addr != 0).then_some(addr)
}

/// Offsets of the function's capabilities with the id `id`.
pub fn capabilities(space: &impl ConfigSpace, function: Function, id: u8) -> impl Iterator<Item = u8> {
    let has = space.read(function, COMMAND) & HAS_CAPABILITIES != 0;
    let pointer = move |offset: u8, shift: u32| (space.read(function, offset) >> shift) as u8 & !3;
    let first = if has { pointer(CAPABILITIES, 0) } else { 0 };
    let next = move |&at: &u8| Some(pointer(at, 8)).filter(|&next| next != 0);
    core::iter::successors(Some(first).filter(|&at| at != 0), next)
        .take(MOST_CAPABILITIES)
        .filter(move |&at| space.read(function, at) as u8 == id)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// A bus of functions, each 64 registers.
    #[derive(Default)]
    pub(crate) struct Bus(pub(crate) RefCell<BTreeMap<(u8, u8, u8), [u32; 64]>>);

    impl ConfigSpace for Bus {
        fn read(&self, f: Function, offset: u8) -> u32 {
            let all = self.0.borrow();
            all.get(&(f.bus, f.device, f.function)).map_or(u32::MAX, |regs| regs[usize::from(offset / 4)])
        }
        fn write(&self, f: Function, offset: u8, value: u32) {
            let mut all = self.0.borrow_mut();
            all.get_mut(&(f.bus, f.device, f.function)).expect("a function is there")[usize::from(offset / 4)] = value;
        }
    }

    fn bus() -> Bus {
        let bus = Bus::default();
        let mut bridge = [0; 64];
        bridge[0] = 0x1237_8086;
        let mut first = [0; 64];
        (first[0], first[3]) = (0x7000_8086, 0x0080_0000);
        let mut wanted = [0; 64];
        (wanted[0], wanted[1], wanted[0x34 / 4]) = (0x1002_1af4, 0x0010_0003, 0x40);
        (wanted[4], wanted[5], wanted[8], wanted[9]) = (0xc001, 0xfebf_1000, 0xfe00_000c, 0x3);
        (wanted[0x40 / 4], wanted[0x50 / 4], wanted[0x60 / 4]) = (0x5009, 0x6011, 0x0009);
        bus.0.borrow_mut().extend([((0, 0, 0), bridge), ((0, 1, 0), first), ((0, 1, 3), wanted)]);
        bus
    }

    const WANTED: Function = Function { bus: 0, device: 1, function: 3 };

    #[test]
    fn functions_are_found_behind_others() {
        assert_eq!(find(&bus(), 0x1af4, &[0x1045, 0x1002]), Some(WANTED));
        assert_eq!(find(&bus(), 0x1af4, &[0x1045]), None);
        assert_eq!(find(&Bus::default(), 0x1af4, &[0x1045]), None);
    }

    #[test]
    fn ranges_and_capabilities_are_read() {
        let bus = bus();
        let ranges: Vec<_> = (0..8).map(|bar| memory_range(&bus, WANTED, bar)).collect();
        assert_eq!(ranges[..3], [None, Some(0xfebf_1000), None]);
        assert_eq!(ranges[4], Some(0x3_fe00_0000));
        assert_eq!(ranges[6..], [None, None]);
        assert_eq!(capabilities(&bus, WANTED, 9).collect::<Vec<_>>(), [0x40, 0x60]);
        enable(&bus, WANTED);
        assert_eq!(bus.read(WANTED, COMMAND), 7);
    }

    #[test]
    fn a_list_of_capabilities_in_a_circle_ends() {
        let bus = bus();
        bus.write(WANTED, 0x60, 0x4009);
        assert!(capabilities(&bus, WANTED, 9).count() <= MOST_CAPABILITIES);
    }
}
