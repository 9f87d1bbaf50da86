//! The calling thread's stack, taken inside `malloc` and inside signal handlers.
//!
//! No memory is allocated, no lock of libc's is taken, and nothing is read that is not known to be readable. `backtrace()`
//! and libgcc's unwinder do none of the three: they load a library at their first call, and before glibc 2.35 they take
//! the dynamic loader's lock, which a program holds that calls `malloc` from inside `dlopen`.
//!
//! A frame is stepped over by the unwind table of the object that its code is in (`.eh_frame`, by `frame_rule`). Where
//! there is none (code that was made at run time, Go, a libc without `_dl_find_object`) the frame pointer leads on, if it
//! points up the stack and can be read. An end that is reached too early gives a short stack, never a fault.
//!
//! The need of stack is one `frame_rule::Context` and what its evaluation takes: less than 4 KiB in all in an optimised build (7
//! without), so that a thread of `PTHREAD_STACK_MIN` can be sampled (a test runs in 16 KiB).

mod expression;
mod frame_rule;
pub(crate) mod objects;
mod readable;
mod registers;
mod table;

use frame_rule::Context;
use readable::Readable;
use registers::Registers;

/// Addresses below are no code: the first page is never mapped.
const LOWEST_CODE: usize = 1 << 12;
/// Addresses of programs end here on x86-64 with page tables of four levels; code lies below with five as well.
const END_OF_CODE: usize = 1 << 47;
/// No frame is longer: a pointer that leads further is taken for something else. The whole stack is 8 MiB by default.
const MOST_FRAME_BYTES: usize = 1 << 20;

/// Fills `frames` with code addresses of the calling thread's stack, the innermost first, and gives how many there are. The
/// first lies in the function that calls `capture` (in which this one is expanded), each other is the address after the call
/// in the next function outwards. What a signal interrupted is given by the address of the instruction that comes next.
#[inline(always)]
pub fn capture(frames: &mut [usize]) -> usize {
    // SAFETY: the slice is writable for its length, and `walk` writes no further.
    unsafe { registers::with_registers(frames.as_mut_ptr(), frames.len(), walk) }
}

/// Walks outwards from `registers`.
///
/// # Safety
/// `frames` is writable for `capacity` words, and `registers` are those of a frame of the calling thread.
unsafe extern "C" fn walk(frames: *mut usize, capacity: usize, registers: &mut Registers) -> usize {
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
    let entry = objects::find(pc).and_then(|object| table::entry(&object, pc));
    let is_signal = match entry {
        Some(entry) => frame_rule::step(registers, &entry, pc, context, memory)?,
        None => by_frame_pointer(registers, memory)?,
    };
    // A signal's handler may run on a stack of its own, anywhere. All other callers lie further up.
    let goes_up = registers.sp() > sp && registers.sp() - sp <= MOST_FRAME_BYTES;
    (is_signal || goes_up).then_some(is_signal)
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
