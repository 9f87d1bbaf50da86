//! An instruction that ends the process.
#![cfg(panic = "abort")]

/// The instruction, as text.
macro_rules! trap {
    () => {
        "ud2"
    };
}
pub(crate) use trap;
