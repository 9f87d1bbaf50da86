//! Reading a stack whose bounds are not known.
//!
//! A thread's stack may be libc's, a coroutine's, a signal handler's, or one that a runtime made. Nothing that can be asked
//! without a lock knows where it ends. A table that is wrong, or a stack that was written over, leads anywhere. So the kernel is
//! asked of each page, once in a walk, before it is read. That is a call that a filter must allow for malloc anyway.
//!
//! A page of the thread's own stack stays readable while the thread is here. A page that a wrong pointer leads to could be
//! unmapped by another thread between the question and the read. That is bounded: a walk ends at the first frame that does not
//! lie further up, and within [`super`]'s limit.

use crate::os::futex;

const PAGE: usize = 1 << 12;

/// Pages that are known to be readable, without a hole.
pub(super) struct Readable {
    from: usize,
    to: usize,
}

impl Readable {
    /// The page of a stack pointer, on which the thread runs.
    pub fn around(sp: usize) -> Self {
        let from = sp & !(PAGE - 1);
        Self { from, to: from + PAGE }
    }

    /// The word at an address; `None` if it is not aligned, or cannot be read.
    pub fn read(&mut self, at: usize) -> Option<usize> {
        if !at.is_multiple_of(size_of::<usize>()) || !self.has(at) {
            return None;
        }
        // SAFETY: the word lies in one page, as it is aligned, and the page is readable. Its owner, this thread, is here and does
        // not write it meanwhile. A page that is not of this thread's stack may be written, and any value does.
        Some(unsafe { (at as *const usize).read_volatile() })
    }

    fn has(&mut self, at: usize) -> bool {
        if (self.from..self.to).contains(&at) {
            return true;
        }
        if !futex::is_readable(at) {
            return false;
        }
        let page = at & !(PAGE - 1);
        if page == self.to {
            self.to += PAGE;
        } else {
            (self.from, self.to) = (page, page + PAGE);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::mman;

    #[test]
    fn pages_are_read_up_to_the_first_that_is_not_there() {
        let at = mman::mmap_anonymous(4 * PAGE, 0).unwrap() as usize;
        // SAFETY: the last two pages of the mapping that was just made.
        unsafe {
            mman::mprotect((at + 2 * PAGE) as *mut u8, PAGE, mman::PROT_NONE).unwrap();
            mman::munmap((at + 3 * PAGE) as *mut u8, PAGE).unwrap();
            (at as *mut usize).add(1).write(7);
        }
        let mut memory = Readable::around(at);
        assert_eq!(memory.read(at + 8), Some(7));
        assert_eq!(memory.read(at + 9), None, "not aligned");
        assert_eq!(memory.read(at + 2 * PAGE - 8), Some(0));
        assert_eq!(memory.read(at + 2 * PAGE), None, "may not be read");
        assert_eq!(memory.read(at + 3 * PAGE), None, "not mapped");
        assert_eq!(memory.read(usize::MAX - 7), None, "the kernel's");
        assert_eq!(memory.read(0), None);
        // SAFETY: what is left of the mapping, which nothing uses any more.
        unsafe { mman::munmap(at as *mut u8, 3 * PAGE).unwrap() };
    }
}
