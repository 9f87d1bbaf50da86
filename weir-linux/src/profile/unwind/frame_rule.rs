//! One step outwards, by what an unwind table says of a function: where its caller's frame begins, and where the caller's
//! registers were saved.

use super::expression::evaluate;
use super::plain_rule::PlainRule;
use super::readable::Readable;
use super::registers::Registers;
use super::table::Entry;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow,
};

/// Rules of one row: of all registers that are followed. Compilers save no others, as the ABI keeps no others.
const RULES: usize = Registers::COUNT;
/// Rows: the one in force, and one that it is restored from. Compilers remember one at a time, and the rules that hold from a
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

/// What one walk uses from frame to frame.
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
    let section = Section::new(entry.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(entry.bytes.as_ptr() as u64);
    let description = section.fde_from_offset(&bases, EhFrameOffset(entry.offset), Section::cie_from_offset).ok()?;
    if description.cie().return_address_register() != Register(Registers::RIP as u16) {
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

/// The row as a plain rule, if it has that form.
fn plain(row: &UnwindTableRow<usize, InPlace>, line: usize) -> Option<PlainRule> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let mut rule = PlainRule::new(line, register.0, *offset)?;
    let mut has_return_address = false;
    for (register, of) in row.registers() {
        match of {
            RegisterRule::Offset(-8) if register.0 == Registers::RIP as u16 => has_return_address = true,
            RegisterRule::Undefined if register.0 == Registers::RIP as u16 => return PlainRule::end(line),
            RegisterRule::Undefined | RegisterRule::SameValue if register.0 != Registers::RIP as u16 => {}
            RegisterRule::Offset(offset) => rule = rule.with_saved(register.0, *offset)?,
            _ => return None,
        }
    }
    has_return_address.then_some(rule)
}

type Expression = (gimli::Expression<EndianSlice<'static, LittleEndian>>, gimli::Encoding);

fn apply(
    registers: &mut Registers,
    row: &UnwindTableRow<usize, InPlace>,
    expression: impl Fn(&UnwindExpression<usize>) -> Option<Expression>,
    memory: &mut Readable,
) -> Option<()> {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(register.0)?.wrapping_add_signed(*offset as isize)
        }
        CfaRule::Expression(at) => evaluate(expression(at)?, None, registers, memory)?,
    };
    let mut caller = *registers;
    // A caller without a rule for its address is none: the outermost function.
    caller.set_frame(0, cfa, registers.frame_pointer());
    for (register, rule) in row.registers() {
        let value = match rule {
            RegisterRule::SameValue => registers.get(register.0),
            RegisterRule::Offset(offset) => memory.read(cfa.wrapping_add_signed(*offset as isize)),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset as isize)),
            RegisterRule::Register(other) => registers.get(other.0),
            RegisterRule::Expression(at) => {
                let at = evaluate(expression(at)?, Some(cfa), registers, memory)?;
                memory.read(at)
            }
            RegisterRule::ValExpression(at) => evaluate(expression(at)?, Some(cfa), registers, memory),
            RegisterRule::Constant(value) => Some(*value as usize),
            _ if register.0 == Registers::RIP as u16 => return None,
            _ => continue,
        };
        caller.set(register.0, value?);
    }
    *registers = caller;
    Some(())
}
