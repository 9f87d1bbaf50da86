//! An instruction that ends the process.

/// It.
macro_rules! trap {
    () => {
        "brk 1"
    };
}
pub(crate) use trap;
