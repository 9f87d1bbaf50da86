//! The auxiliary vector: what the kernel told the program when it was executed.

use super::fd;
use crate::os::weak_symbol::weak_symbol;

weak_symbol!(getauxval = "getauxval" in libc: unsafe extern "C" fn(usize) -> usize);

/// A value of the vector, from libc or, where libc lacks the function, from the kernel.
pub fn value(kind: u32) -> Option<usize> {
    match getauxval() {
        // SAFETY: libc's function of this type; any argument is allowed.
        Some(getauxval) => Some(unsafe { getauxval(kind as usize) }),
        None => from_proc(kind.into()).and_then(|value| value.try_into().ok()),
    }
}

/// A value of the auxiliary vector, from `/proc/self/auxv`.
pub fn from_proc(kind: u64) -> Option<u64> {
    let mut buf = [0u8; 1024];
    find(fd::read_file(c"/proc/self/auxv", &mut buf).ok()?, kind)
}

fn find(vector: &[u8], kind: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    vector.chunks_exact(16).find(|pair| word(&pair[..8]) == Some(kind)).and_then(|pair| word(&pair[8..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;
    use weir_core::base::units::PAGE;

    #[test]
    fn both_ways_give_the_same() {
        let kind = linux_raw_sys::auxvec::AT_PAGESZ;
        assert_eq!((value(kind), from_proc(kind.into())), (Some(PAGE), Some(PAGE as u64)));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = find(&text, 6);
        }
    }
}
