//! The registers of a frame, by the numbers that unwind tables use.

use crate::arch::registers;

/// Registers that a frame is described by, in the order of the ABI's DWARF numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Registers([usize; Registers::COUNT]);

impl Registers {
    pub const COUNT: usize = registers::COUNT;
    pub const FRAME_POINTER: usize = registers::FRAME_POINTER;
    pub const SP: usize = registers::SP;
    pub const PC: usize = registers::PC;

    /// The registers of a frame of which these three are known, and 0 for the others.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub fn of(pc: usize, sp: usize, frame_pointer: usize) -> Self {
        let mut registers = Self([0; Self::COUNT]);
        registers.set_frame(pc, sp, frame_pointer);
        registers
    }

    pub fn sp(&self) -> usize {
        self.0[Self::SP]
    }

    pub fn pc(&self) -> usize {
        self.0[Self::PC]
    }

    pub fn frame_pointer(&self) -> usize {
        self.0[Self::FRAME_POINTER]
    }

    /// One by its number, if it is among these.
    pub fn get(&self, number: u16) -> Option<usize> {
        self.0.get(usize::from(number)).copied()
    }

    /// Sets one by its number; the others (of vectors) are not followed.
    pub fn set(&mut self, number: u16, value: usize) {
        if let Some(register) = self.0.get_mut(usize::from(number)) {
            *register = value;
        }
    }

    pub fn set_frame(&mut self, pc: usize, sp: usize, frame_pointer: usize) {
        (self.0[Self::PC], self.0[Self::SP], self.0[Self::FRAME_POINTER]) = (pc, sp, frame_pointer);
    }
}
