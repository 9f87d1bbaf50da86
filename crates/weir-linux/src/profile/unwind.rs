//! The calling thread's stack, taken inside `malloc` and inside signal handlers.
//!
//! No memory is allocated, no lock of libc's is taken, and nothing is read that is not known to be readable. `backtrace()` and
//! libgcc's unwinder do none of the three. They load a library at their first call. Before glibc 2.35 they take the dynamic
//! loader's lock, which a program holds that calls `malloc` from inside `dlopen`.
//!
//! A frame is stepped over by the unwind table of the object that its code is in (`.eh_frame`, by `frame_rule`). A rule that was
//! found before, and has the form that most have (`plain_rule`), is kept (`known_rules`). It is used while the entry that it is
//! from has the same bytes. There may be no table: code that was made at run time, Go, a libc without `_dl_find_object`. Then the
//! frame pointer leads on, if it points up the stack and can be read. An end that is reached too early gives a short stack, never
//! a fault.
//!
//! The need of stack is one `frame_rule::Context` and what its evaluation takes: some 4 KiB in all in an optimised build, 7
//! without. So a thread of `PTHREAD_STACK_MIN` can be sampled; a test runs in 16 KiB.

mod expression;
mod frame_rule;
mod known_rules;
pub(crate) mod objects;
mod plain_rule;
mod readable;
mod registers;
mod rule_slot;
mod table;

use crate::arch::registers::{END_OF_CODE, with_registers};
use frame_rule::Context;
use plain_rule::PlainRule;
use readable::Readable;
use registers::Registers;
use table::Lines;

/// Addresses below are no code: the first page is never mapped.
const LOWEST_CODE: usize = 1 << 12;
/// No frame is longer: a pointer that leads further is taken for something else. The whole stack is 8 MiB by default.
const MOST_FRAME_BYTES: usize = 1 << 20;

/// Fills `frames` with code addresses of the calling thread's stack, the innermost first, and gives how many there are. The first
/// lies in the function that calls `capture` (in which this one is expanded). Each other is the address after the call in the
/// next function outwards. What a signal interrupted is given by the address of the instruction that comes next.
#[inline(always)]
pub fn capture(frames: &mut [usize]) -> usize {
    // SAFETY: the slice is writable for its length, and `walk` writes no further.
    unsafe { with_registers(frames.as_mut_ptr(), frames.len(), walk) }
}

/// Walks outwards from `registers`.
///
/// # Safety
/// `frames` is writable for `capacity` words; `registers` has the words of a frame of the calling thread.
unsafe extern "C" fn walk(frames: *mut usize, capacity: usize, registers: *mut usize) -> usize {
    // SAFETY: as many words as there are registers, which nobody else uses.
    let registers = unsafe { &mut *registers.cast::<Registers>() };
    let mut context = Context::new();
    let mut memory = Readable::around(registers.sp());
    let (mut depth, mut is_interrupted) = (0, false);
    while depth < capacity && (LOWEST_CODE..END_OF_CODE).contains(&registers.pc()) {
        // SAFETY: `depth` is below the capacity that the caller answers for.
        unsafe { frames.add(depth).write(registers.pc()) };
        depth += 1;
        // A return address lies behind the call, and behind its function where the call does not return.
        let pc = registers.pc() - usize::from(!is_interrupted);
        match step(registers, pc, &mut context, &mut memory) {
            Some(is_signal) => is_interrupted = is_signal,
            None => break,
        }
    }
    depth
}

/// Makes `registers` the caller's; true where the frame was a signal's, so that the caller was interrupted and called
/// nothing. `None`: the stack ends, or cannot be followed.
fn step(registers: &mut Registers, pc: usize, context: &mut Context, memory: &mut Readable) -> Option<bool> {
    let sp = registers.sp();
    let object = objects::find(pc);
    let lines = object.as_ref().and_then(Lines::of);
    let is_signal = match lines.as_ref().and_then(|lines| Some((lines, line_of(lines, pc)?))) {
        Some((lines, (line, rule))) => by_table(registers, (lines, line, rule), pc, context, memory)?,
        None => by_frame_pointer(registers, memory)?,
    };
    // A signal's handler may run on a stack of its own, anywhere. All other callers lie further up.
    let goes_up = registers.sp() > sp && registers.sp() - sp <= MOST_FRAME_BYTES;
    (is_signal || goes_up).then_some(is_signal)
}

/// The line of `pc` in its object's table; with the rule that may be known, and its tag.
fn line_of(lines: &Lines, pc: usize) -> Option<(usize, (u64, u64))> {
    let known = known_rules::find(pc);
    let line = PlainRule::from_word(known.0).line();
    let line = if lines.is_of(line, pc) { line } else { lines.find(pc)? };
    Some((line, known))
}

/// By the rule of a line: the known one, if it is of this line's entry as it is now.
fn by_table(
    registers: &mut Registers,
    (lines, line, (rule, tag)): (&Lines, usize, (u64, u64)),
    pc: usize,
    context: &mut Context,
    memory: &mut Readable,
) -> Option<bool> {
    let Some(entry) = lines.entry(line) else { return by_frame_pointer(registers, memory) };
    let now = entry.tag(pc);
    if now == Some(tag) {
        PlainRule::from_word(rule).apply(registers, memory)?;
        return Some(false);
    }
    let keep = |rule: PlainRule| now.into_iter().for_each(|tag| known_rules::keep(pc, rule.word(), tag));
    frame_rule::step(registers, &entry, (pc, line), context, memory, keep)
}

/// The frame pointer's convention: it points to the caller's, and the return address lies behind that.
fn by_frame_pointer(registers: &mut Registers, memory: &mut Readable) -> Option<bool> {
    let frame = registers.frame_pointer();
    if frame < registers.sp() || frame - registers.sp() > MOST_FRAME_BYTES {
        return None;
    }
    let (caller, pc) = (memory.read(frame)?, memory.read(frame + 8)?);
    registers.set_frame(pc, frame + 16, caller);
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hint::black_box;
    use std::vec::Vec;

    #[inline(never)]
    fn stack_below(calls: usize) -> Vec<usize> {
        if calls > 0 {
            return black_box(stack_below(black_box(calls - 1)));
        }
        // No further than the calls: the frames around the test want slots too.
        let mut frames = [0; 6];
        let depth = capture(&mut frames);
        frames[..depth].to_vec()
    }

    /// Whether it is so; not where another test's walk takes the slot meanwhile.
    fn is_used_and_replaced() -> bool {
        let all = stack_below(5);
        assert_eq!(all.len(), 6, "{all:x?}");
        // All five calls return to one address.
        let pc = all[4] - 1;
        let (rule, tag) = known_rules::find(pc);
        let Some(end) = PlainRule::end(PlainRule::from_word(rule).line()) else { return false };
        known_rules::keep(pc, end.word(), tag);
        // By a rule that says that the stack ends.
        let is_used = stack_below(5).len() == 2;
        known_rules::keep(pc, end.word(), tag ^ 1);
        let again = stack_below(5);
        tag != 0 && is_used && again[1..] == all[1..] && known_rules::find(pc) == (rule, tag)
    }

    #[test]
    fn a_kept_rule_is_used_if_its_tag_is_the_entrys_and_replaced_if_not() {
        // Elsewhere no rule has the plain form.
        if crate::arch::registers::RETURN_ADDRESS_IS_BELOW_FRAME {
            assert!((0..100).any(|_| is_used_and_replaced()));
        }
    }
}
