//! The call stack of an allocation, without Weir's own frames.

use core::ops::Range;
use weir_core::profile::layout::FRAMES;

use crate::arch::registers::own_code;
use crate::profile::unwind;

/// Frames of Weir's own between the program's call and the walk: at most, in builds without optimisation.
const OWN: usize = 16;

/// A call stack, from the caller of the allocation outwards.
pub struct CallStack {
    frames: [usize; FRAMES + OWN],
    used: Range<usize>,
}

impl CallStack {
    /// The calling thread's.
    #[inline(never)]
    pub fn here() -> Self {
        let mut frames = [0; FRAMES + OWN];
        let len = unwind::capture(&mut frames).min(frames.len());
        let own = own_code();
        let inner = frames[..len].iter().take_while(|frame| own.contains(frame)).count();
        // Where the library is a part of the program, as in tests, all of it may look like Weir's.
        let begin = if inner == len { 0 } else { inner };
        Self { frames, used: begin..len.min(begin + FRAMES) }
    }

    /// The stack's return addresses.
    pub fn frames(&self) -> &[usize] {
        &self.frames[self.used.clone()]
    }
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
