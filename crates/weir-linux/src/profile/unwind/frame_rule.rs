//! One step outwards, by what an unwind table says of a function: where its caller's frame begins, and where the caller's
//! registers were saved.

use super::expression::evaluate;
use super::plain_rule::PlainRule;
use super::readable::Readable;
use super::registers::Registers;
use super::table::Entry;
use crate::arch::registers;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow,
};

/// Rules of one row: of all registers that are followed. Compilers save no others, as the ABI keeps no others.
const RULES: usize = Registers::COUNT;
/// Rows: the one in force, and one that it is restored from. Compilers remember one at a time. The rules that hold from a
/// function's start are one, of the return address, which is kept beside the rows.
const ROWS: usize = 2;

/// Where the rules of a row are kept while they are found: in place, as nothing may be allocated.
pub(super) struct InPlace;

impl UnwindContextStorage<usize> for InPlace {
    type Rules = [(Register, RegisterRule<usize>); RULES];
    type Stack = [UnwindTableRow<usize, InPlace>; ROWS];
}

/// The rows of the entry in work.
pub(super) type Rows = UnwindContext<usize, InPlace>;

type Section = EhFrame<EndianSlice<'static, LittleEndian>>;

/// Storage that one walk uses from frame to frame.
pub(super) struct Context(Rows);

impl Context {
    pub fn new() -> Self {
        Self(Rows::new_in())
    }
}

/// Makes `registers` the caller's; true if the frame is one that the kernel made for a signal. `None`: the stack ends here,
/// or the entry is not of this address, or asks for what is not done. A rule that has the plain form `keep` is given; `line` is the entry's.
#[inline(never)]
pub(super) fn step(
    registers: &mut Registers,
    entry: &Entry,
    (pc, line): (usize, usize),
    context: &mut Context,
    memory: &mut Readable,
    keep: impl FnOnce(PlainRule),
) -> Option<bool> {
    let mut section = Section::new(entry.bytes, LittleEndian);
    section.set_vendor(registers::VENDOR);
    let bases = BaseAddresses::default().set_eh_frame(entry.bytes.as_ptr() as u64);
    let description = section.fde_from_offset(&bases, EhFrameOffset(entry.offset), Section::cie_from_offset).ok()?;
    if description.cie().return_address_register() != Register(Registers::PC as u16) {
        return None;
    }
    let row = description.unwind_info_for_address(&section, &bases, &mut context.0, pc as u64).ok()?;
    if !description.is_signal_trampoline()
        && let Some(rule) = plain(row, line)
    {
        keep(rule);
    }
    let encoding = description.cie().encoding();
    let expression = |at: &UnwindExpression<usize>| Some((at.get(&section).ok()?, encoding));
    apply(registers, row, expression, memory)?;
    Some(description.is_signal_trampoline())
}

/// The row as a plain rule, if it has that form: what follows from that is the same as by [`apply`].
fn plain(row: &UnwindTableRow<usize, InPlace>, line: usize) -> Option<PlainRule> {
    if !registers::RETURN_ADDRESS_IS_BELOW_FRAME {
        return None;
    }
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let mut rule = PlainRule::new(line, register.0, *offset)?;
    let mut has_return_address = false;
    for (register, of) in row.registers() {
        match of {
            RegisterRule::Offset(-8) if register.0 == Registers::PC as u16 => has_return_address = true,
            RegisterRule::Undefined if register.0 == Registers::PC as u16 => return PlainRule::end(line),
            RegisterRule::Undefined => {}
            // Of a register that is not followed the value is not known.
            RegisterRule::SameValue if register.0 < Registers::PC as u16 => {}
            RegisterRule::Offset(offset) => rule = rule.with_saved(register.0, *offset)?,
            _ => return None,
        }
    }
    has_return_address.then_some(rule)
}

type Expression = (gimli::Expression<EndianSlice<'static, LittleEndian>>, gimli::Encoding);

fn apply(
    frame: &mut Registers,
    row: &UnwindTableRow<usize, InPlace>,
    expression: impl Fn(&UnwindExpression<usize>) -> Option<Expression>,
    memory: &mut Readable,
) -> Option<()> {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => frame.get(register.0)?.wrapping_add_signed(*offset as isize),
        CfaRule::Expression(at) => evaluate(expression(at)?, None, frame, memory)?,
    };
    let mut caller = *frame;
    // A caller without a rule for its address is none: the outermost function.
    caller.set_frame(0, cfa, frame.frame_pointer());
    for (register, rule) in row.registers() {
        let value = match rule {
            RegisterRule::SameValue => frame.get(register.0),
            RegisterRule::Offset(offset) => memory.read(cfa.wrapping_add_signed(*offset as isize)),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset as isize)),
            RegisterRule::Register(other) => frame.get(other.0),
            RegisterRule::Expression(at) => {
                let at = evaluate(expression(at)?, Some(cfa), frame, memory)?;
                memory.read(at)
            }
            RegisterRule::ValExpression(at) => evaluate(expression(at)?, Some(cfa), frame, memory),
            RegisterRule::Constant(value) => Some(*value as usize),
            _ if register.0 == Registers::PC as u16 => return None,
            _ => continue,
        };
        caller.set(register.0, value?);
    }
    caller.set(Registers::PC as u16, registers::plain_address(caller.pc()));
    *frame = caller;
    Some(())
}

// The registers of x86-64.
#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const DEF_CFA: u8 = 0x0c;
    const OFFSET: u8 = 0x80;
    const SAME_VALUE: u8 = 0x08;
    const UNDEFINED: u8 = 0x07;
    const RSP: u8 = Registers::SP as u8;
    const RIP: u8 = Registers::PC as u8;

    /// An entry of a function of 16 bytes at 0x1000 with these instructions, in the form of DWARF's `.eh_frame`. Its common part
    /// puts the return address below the caller's frame, 8 bytes above the stack pointer.
    fn entry(instructions: &[u8]) -> Entry {
        let part = |id: u32, body: &[&[u8]]| {
            let mut bytes = [&id.to_le_bytes()[..], &body.concat()].concat();
            bytes.resize(bytes.len().next_multiple_of(8) + 4, 0);
            [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
        };
        // Version 1, no augmentation, units of 1 and -8 bytes, the return address's register.
        let common = part(0, &[&[1, 0, 1, 0x78, RIP, DEF_CFA, RSP, 8, OFFSET | RIP, 1]]);
        let own = part(common.len() as u32 + 4, &[&0x1000u64.to_le_bytes(), &16u64.to_le_bytes(), instructions]);
        let offset = common.len();
        Entry { bytes: Vec::leak([common, own].concat()), offset }
    }

    /// Effect of a step by these instructions on registers that stand at `stack`, and the plain rule that it found.
    fn steps(instructions: &[u8], stack: &[usize]) -> (Option<Registers>, Option<PlainRule>) {
        let mut registers = registers_at(stack);
        let mut memory = around(stack);
        let mut rule = None;
        let keep = |found| rule = Some(found);
        let stepped = step(&mut registers, &entry(instructions), (0x1008, 7), &mut Context::new(), &mut memory, keep);
        (stepped.map(|is_signal| assert!(!is_signal)).map(|()| registers), rule)
    }

    fn registers_at(stack: &[usize]) -> Registers {
        let mut registers = Registers::of(0x1008, stack.as_ptr() as usize, stack[4..].as_ptr() as usize);
        (0..17).filter(|at| ![6, 7, 16].contains(at)).for_each(|at| registers.set(at, 100 + usize::from(at)));
        registers
    }

    fn around(stack: &[usize]) -> Readable {
        Readable::around(stack.as_ptr() as usize)
    }

    fn all(registers: &Registers) -> Vec<Option<usize>> {
        (0..17).map(|number| registers.get(number)).collect()
    }

    #[test]
    fn a_kept_rule_does_what_the_entry_says() {
        let stack: [usize; 16] = core::array::from_fn(|at| 1000 + at);
        let rbp = Registers::FRAME_POINTER as u8;
        let plain: [&[u8]; 6] = [
            &[],
            &[DEF_CFA, RSP, 32, OFFSET | 3, 2, OFFSET | rbp, 3],
            &[DEF_CFA, rbp, 16, OFFSET | rbp, 2, OFFSET | 15, 6],
            &[DEF_CFA, RSP, 64, SAME_VALUE, 3, UNDEFINED, 0, OFFSET | 12, 5],
            &[UNDEFINED, 17, OFFSET | 13, 2, DEF_CFA, RSP, 24],
            &[DEF_CFA, RSP, 96, OFFSET | 14, 4, SAME_VALUE, 13],
        ];
        for (at, instructions) in plain.into_iter().enumerate() {
            let (by_entry, rule) = steps(instructions, &stack);
            let rule = rule.unwrap_or_else(|| panic!("{at} has no plain rule"));
            let mut registers = registers_at(&stack);
            let applied = rule.apply(&mut registers, &mut around(&stack));
            assert_eq!(applied.map(|()| all(&registers)), by_entry.as_ref().map(all), "{at}");
            assert_eq!(rule.line(), 7);
        }
    }

    #[test]
    fn the_end_of_the_stack_is_kept_too() {
        let stack = [0; 16];
        let (by_entry, rule) = steps(&[UNDEFINED, RIP], &stack);
        assert!(by_entry.is_none());
        let mut registers = registers_at(&stack);
        assert!(rule.unwrap().apply(&mut registers, &mut around(&stack)).is_none());
    }

    #[test]
    fn registers_that_are_not_followed_have_no_plain_rule_where_the_entry_ends_the_stack() {
        let stack = [1; 16];
        // A vector register that keeps its value: what it is, is not known.
        let (by_entry, rule) = steps(&[SAME_VALUE, 17], &stack);
        assert!(by_entry.is_none() && rule.is_none());
        // The return address in a register, or the frame at another register than the two.
        let (by_entry, rule) = steps(&[0x09, RIP, 3], &stack);
        assert!(by_entry.is_some_and(|registers| registers.pc() == 103) && rule.is_none());
        let (by_entry, rule) = steps(&[SAME_VALUE, RIP], &stack);
        assert!(by_entry.is_some() && rule.is_none());
    }
}
