//! An instruction that ends the process.

/// The instruction, as text.
macro_rules! trap {
    () => {
        "brk 1"
    };
}
pub(crate) use trap;
