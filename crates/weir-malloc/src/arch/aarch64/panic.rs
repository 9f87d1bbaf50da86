//! An instruction that ends the process.
#![cfg(panic = "abort")]

/// The instruction, as text.
macro_rules! trap {
    () => {
        "brk 1"
    };
}
pub(crate) use trap;
