//! A personality routine that has nothing to do in its frame.
#![cfg(panic = "abort")]

/// Its body, as text: it returns `_URC_CONTINUE_UNWIND`.
macro_rules! go_on_unwinding {
    () => {
        "mov eax, 8\nret"
    };
}
pub(crate) use go_on_unwinding;
