//! The registers of a frame, by the numbers that unwind tables use, and how the first frame's are taken.

/// Registers that a frame is described by, in the order of the x86-64 ABI's DWARF numbers: rax, rdx, rcx, rbx, rsi, rdi, rbp,
/// rsp, r8 to r15, and the return address, which stands for rip.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Registers([usize; Registers::COUNT]);

impl Registers {
    pub const COUNT: usize = 17;
    pub const RBP: usize = 6;
    pub const RSP: usize = 7;
    pub const RIP: usize = 16;

    /// Those of a frame of which these three are known, and 0 for the others.
    #[cfg(test)]
    pub fn of(pc: usize, sp: usize, frame_pointer: usize) -> Self {
        let mut registers = Self([0; Self::COUNT]);
        registers.set_frame(pc, sp, frame_pointer);
        registers
    }

    pub fn sp(&self) -> usize {
        self.0[Self::RSP]
    }

    pub fn pc(&self) -> usize {
        self.0[Self::RIP]
    }

    pub fn frame_pointer(&self) -> usize {
        self.0[Self::RBP]
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
        (self.0[Self::RIP], self.0[Self::RSP], self.0[Self::RBP]) = (pc, sp, frame_pointer);
    }
}

/// What is called with the registers of the frame that called [`with_registers`].
type Walk = unsafe extern "C" fn(*mut usize, usize, &mut Registers) -> usize;

/// Calls `walk` with the two arguments and the registers as they will be when this function has returned.
///
/// # Safety
/// `walk` may be called with these arguments.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn with_registers(frames: *mut usize, capacity: usize, walk: Walk) -> usize {
    core::arch::naked_asm!(
        ".cfi_startproc",
        // 17 words, after which the stack is aligned to 16 for the call.
        "sub rsp, 136",
        ".cfi_adjust_cfa_offset 136",
        "mov [rsp], rax",
        "mov [rsp + 8], rdx",
        "mov [rsp + 16], rcx",
        "mov [rsp + 24], rbx",
        "mov [rsp + 32], rsi",
        "mov [rsp + 40], rdi",
        "mov [rsp + 48], rbp",
        "lea rax, [rsp + 144]",
        "mov [rsp + 56], rax",
        "mov [rsp + 64], r8",
        "mov [rsp + 72], r9",
        "mov [rsp + 80], r10",
        "mov [rsp + 88], r11",
        "mov [rsp + 96], r12",
        "mov [rsp + 104], r13",
        "mov [rsp + 112], r14",
        "mov [rsp + 120], r15",
        "mov rax, [rsp + 136]",
        "mov [rsp + 128], rax",
        "mov rax, rdx",
        "mov rdx, rsp",
        "call rax",
        "add rsp, 136",
        ".cfi_adjust_cfa_offset -136",
        "ret",
        ".cfi_endproc",
    )
}
