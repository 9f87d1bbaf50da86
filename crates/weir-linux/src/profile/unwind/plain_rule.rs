//! The rule of most frames, in one word. The caller's frame begins at the stack pointer or the frame pointer and a constant. The
//! return address lies right below that. Registers that were saved lie below it, a word each.
//!
//! From the lowest bit the word has:
//!
//! - the line of the entry in the object's table (24 bits);
//! - the constant in words (15), of which 0 says that the stack ends here;
//! - whether it is from the frame pointer (1);
//! - 4 bits for each register that is kept over calls: how many words below the caller's frame it lies, 0 if it is unchanged.

use super::readable::Readable;
use super::registers::Registers;
use crate::arch::registers;

const WORD: usize = size_of::<usize>();
const LINE_BITS: u32 = 24;
const LENGTH_BITS: u32 = 15;
const FROM_FRAME_POINTER: u32 = LINE_BITS + LENGTH_BITS;
const FIRST_SAVED: u32 = FROM_FRAME_POINTER + 1;
const SAVED_BITS: u32 = 4;
/// Registers that the ABI keeps over calls, by DWARF's numbers: five of them, and the frame pointer.
const SAVED: [u16; 6] = {
    let [a, b, c, d, e] = registers::KEPT;
    [a, Registers::FRAME_POINTER as u16, b, c, d, e]
};
const _: () = assert!(FIRST_SAVED + SAVED_BITS * SAVED.len() as u32 == u64::BITS);

/// A rule in a word.
#[derive(Clone, Copy)]
pub(super) struct PlainRule(u64);

impl PlainRule {
    /// A rule of no saved registers: the caller's frame begins `offset` bytes above `register`. `None`: it has no such form.
    pub fn new(line: usize, register: u16, offset: i64) -> Option<Self> {
        let length = usize::try_from(offset).ok().filter(|length| length.is_multiple_of(WORD))? / WORD;
        let is_frame_pointer = register == Registers::FRAME_POINTER as u16;
        let fits = line < 1 << LINE_BITS && (1..1 << LENGTH_BITS).contains(&length);
        (fits && (is_frame_pointer || register == Registers::SP as u16)).then(|| {
            Self(line as u64 | (length as u64) << LINE_BITS | u64::from(is_frame_pointer) << FROM_FRAME_POINTER)
        })
    }

    /// The stack ends in this function.
    pub fn end(line: usize) -> Option<Self> {
        (line < 1 << LINE_BITS).then_some(Self(line as u64))
    }

    /// The rule with a register that was saved at `offset` from the begin of the caller's frame.
    pub fn with_saved(self, register: u16, offset: i64) -> Option<Self> {
        let at = SAVED.iter().position(|&saved| saved == register)? as u32;
        let below = usize::try_from(offset.checked_neg()?).ok().filter(|below| below.is_multiple_of(WORD))? / WORD;
        (1..1 << SAVED_BITS).contains(&below).then(|| Self(self.0 | (below as u64) << (FIRST_SAVED + at * SAVED_BITS)))
    }

    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub fn word(self) -> u64 {
        self.0
    }

    /// The line of the function's entry in its object's table.
    pub fn line(self) -> usize {
        (self.0 & ((1 << LINE_BITS) - 1)) as usize
    }

    /// Makes `registers` the caller's. `None`: the stack ends here, or cannot be read.
    pub fn apply(self, registers: &mut Registers, memory: &mut Readable) -> Option<()> {
        let length = (self.0 >> LINE_BITS) as usize & ((1 << LENGTH_BITS) - 1);
        if length == 0 {
            return None;
        }
        let is_frame_pointer = self.0 >> FROM_FRAME_POINTER & 1 != 0;
        let base = if is_frame_pointer { registers.frame_pointer() } else { registers.sp() };
        let begin = base.wrapping_add(length * WORD);
        let pc = memory.read(begin.wrapping_sub(WORD))?;
        let mut saved = self.0 >> FIRST_SAVED;
        for register in SAVED {
            let below = saved as usize & ((1 << SAVED_BITS) - 1);
            if below != 0 {
                registers.set(register, memory.read(begin.wrapping_sub(below * WORD))?);
            }
            saved >>= SAVED_BITS;
        }
        registers.set_frame(pc, begin, registers.frame_pointer());
        Some(())
    }
}

// The registers of x86-64.
#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    const RSP: u16 = Registers::SP as u16;

    #[test]
    fn a_rule_leads_to_the_caller() {
        let stack: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
        let at = stack.as_ptr() as usize;
        let mut registers = Registers::of(0, at, 99);
        let rule = PlainRule::new(77, RSP, 48).unwrap().with_saved(Registers::FRAME_POINTER as u16, -16).unwrap();
        let rule = rule.with_saved(15, -48).unwrap();
        assert_eq!((rule.line(), PlainRule::from_word(rule.word()).line()), (77, 77));
        rule.apply(&mut registers, &mut Readable::around(at)).unwrap();
        assert_eq!((registers.pc(), registers.sp(), registers.frame_pointer()), (6, at + 48, 5));
        assert_eq!((registers.get(15), registers.get(14), registers.get(3)), (Some(1), Some(0), Some(0)));
        let mut registers = Registers::of(0, 0, at);
        PlainRule::new(0, Registers::FRAME_POINTER as u16, 16)
            .unwrap()
            .apply(&mut registers, &mut Readable::around(at))
            .unwrap();
        assert_eq!((registers.pc(), registers.sp(), registers.frame_pointer()), (2, at + 16, at));
        assert!(PlainRule::end(3).unwrap().apply(&mut registers, &mut Readable::around(at)).is_none());
    }

    #[test]
    fn what_has_another_form_is_refused() {
        let rule = PlainRule::new(0, RSP, 8).unwrap();
        assert!(PlainRule::new(1 << 24, RSP, 8).is_none() && PlainRule::end(1 << 24).is_none());
        assert!(PlainRule::new(0, 3, 8).is_none(), "from another register");
        for offset in [0, -8, 12, 1 << 18] {
            assert!(PlainRule::new(0, RSP, offset).is_none(), "{offset}");
        }
        for (register, offset) in [(3, 0), (3, 8), (3, -12), (3, -128), (0, -16), (3, i64::MIN)] {
            assert!(rule.with_saved(register, offset).is_none(), "{register} {offset}");
        }
    }
}
