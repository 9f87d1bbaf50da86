//! The call stack of an allocation, without Weir's own frames.

use weir_core::profile::layout::FRAMES;

use crate::arch::registers::own_code;
use crate::profile::unwind;

/// Frames of Weir's own between the program's call and the walk: at most, in builds without optimisation.
const OWN: usize = 16;

/// Words of room for the most frames that the heap profile keeps.
pub const ROOM: usize = room(FRAMES);

/// Words of room for so many frames.
pub const fn room(frames: usize) -> usize {
    frames + OWN
}

/// The calling thread's stack: return addresses from the caller of the allocation outwards, in the caller's room ([`room`]).
/// There is no second copy of it on the stack, as a program gives little.
#[inline(never)]
pub fn call_stack(room: &mut [usize]) -> &[usize] {
    let len = unwind::capture(room).min(room.len());
    let own = own_code();
    let inner = room[..len].iter().take_while(|frame| own.contains(frame)).count();
    // Where the library is a part of the program, as in tests, all of it may look like Weir's.
    let begin = if inner == len { 0 } else { inner };
    &room[begin..len.min(begin + room.len() - OWN)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_is_what_the_linker_put_into_the_file() {
        let code = own_code();
        assert!(code.contains(&(own_code as *const () as usize)), "{code:x?}");
        assert!(!code.contains(&(libc::abort as *const () as usize)) && code.len() < 1 << 30);
    }
}
