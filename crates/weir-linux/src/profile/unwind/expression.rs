//! Expressions in unwind tables. The few operations are known that compilers, linkers and libc put there. Their uses
//! are stacks that are aligned anew, the linker's jump table, and the frame of a signal.

use super::readable::Readable;
use super::registers::Registers;
use gimli::{Encoding, EndianSlice, Expression, LittleEndian, Operation};

/// Values that an expression may have pending: the longest known has three.
const DEPTH: usize = 8;

/// The values of an expression, the last on top.
struct Values {
    values: [usize; DEPTH],
    len: usize,
}

impl Values {
    fn push(&mut self, value: usize) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    /// Puts what comes of the two on top in their place; the topmost is the second argument.
    fn combine(&mut self, f: impl Fn(usize, usize) -> usize) -> Option<()> {
        let (second, first) = (self.pop()?, self.pop()?);
        self.push(f(first, second))
    }
}

/// Value of an expression, which begins with `first` on its stack; `None` if it has an operation beyond those here.
pub(super) fn evaluate(
    (expression, encoding): (Expression<EndianSlice<'static, LittleEndian>>, Encoding),
    first: Option<usize>,
    registers: &Registers,
    memory: &mut Readable,
) -> Option<usize> {
    let mut stack = Values { values: [0; DEPTH], len: 0 };
    first.map_or(Some(()), |first| stack.push(first))?;
    let mut operations = expression.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        match operation {
            Operation::RegisterOffset { register, offset, .. } => {
                stack.push(registers.get(register.0)?.wrapping_add_signed(offset as isize))?;
            }
            Operation::Deref { size: 8, space: false, .. } => {
                let at = stack.pop()?;
                stack.push(memory.read(at)?)?;
            }
            Operation::UnsignedConstant { value } => stack.push(value as usize)?,
            Operation::SignedConstant { value } => stack.push(value as usize)?,
            Operation::PlusConstant { value } => {
                let sum = stack.pop()?.wrapping_add(value as usize);
                stack.push(sum)?;
            }
            Operation::Plus => stack.combine(usize::wrapping_add)?,
            Operation::Minus => stack.combine(usize::wrapping_sub)?,
            Operation::And => stack.combine(|a, b| a & b)?,
            Operation::Or => stack.combine(|a, b| a | b)?,
            Operation::Shl => stack.combine(|a, b| a.checked_shl(b as u32).unwrap_or(0))?,
            Operation::Ge => stack.combine(|a, b| usize::from(a.cast_signed() >= b.cast_signed()))?,
            Operation::Nop => {}
            _ => return None,
        }
    }
    stack.pop()
}
