//! Errors of the command itself.

use std::fmt;

/// An error: one line with what went wrong and what to do, and the exit status.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub status: i32,
    message: String,
}

/// Exit status if Weir itself fails: 125, as of `env` and `timeout`, which leaves 126 and 127 to the program.
pub const WEIR_FAILED: i32 = 125;

impl Failure {
    /// Weir itself fails.
    pub fn of_weir(message: String) -> Self {
        Self { status: WEIR_FAILED, message }
    }
    /// The program is there but cannot be executed.
    pub fn not_executable(message: String) -> Self {
        Self { status: 126, message }
    }
    /// The program is not there.
    pub fn not_found(message: String) -> Self {
        Self { status: 127, message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
