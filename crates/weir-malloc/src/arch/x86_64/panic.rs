//! An instruction that ends the process.

/// It.
macro_rules! trap {
    () => {
        "ud2"
    };
}
pub(crate) use trap;
