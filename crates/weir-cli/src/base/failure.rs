//! Errors of the command itself.

use std::fmt;
use std::io::ErrorKind;

/// An error: one line with what went wrong and what to do, and the exit status.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub status: i32,
    message: String,
}

/// The kinds of failures that exit statuses tell scripts. `weir run` leaves all but [`WEIR_FAILED`] to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `weir shrink` did not get enough memory.
    NotEnough = 1,
    /// The command line is wrong, or a value in it.
    Usage = 2,
    /// There is no such process, or no such file.
    NotFound = 3,
    /// The process has no Weir, or one of another version.
    NoWeir = 4,
    /// The kernel, the process or one of its settings does not allow it.
    Refused = 5,
    /// The process does not answer in time.
    NotAnswering = 6,
}

/// The exit statuses, for the end of the help.
pub const STATUSES: &str = "Exit status: 0 done; 1 `doctor` found that Weir cannot work, `shrink` that too little is given; 2 \
                            wrong options or values; 3 no such process or file; 4 the process has no Weir, or another version of it; 5 not allowed, by the kernel, \
                            the process or its settings; 6 the process does not answer; 125 anything else.";

/// Exit status if Weir itself fails: 125, as of `env` and `timeout`, which leaves 126 and 127 to the program.
pub const WEIR_FAILED: i32 = 125;

impl Failure {
    /// A file cannot be read, for this reason; `other` is the status of a reason that has none of its own.
    pub(crate) fn of_file(error: &std::io::Error, other: i32, message: String) -> Self {
        let status = match error.kind() {
            ErrorKind::NotFound => Kind::NotFound as i32,
            ErrorKind::PermissionDenied => Kind::Refused as i32,
            _ => other,
        };
        Self { status, message }
    }
    /// Weir itself fails.
    pub fn of_weir(message: String) -> Self {
        Self { status: WEIR_FAILED, message }
    }
    /// A failure of that kind.
    pub fn of(kind: Kind, message: String) -> Self {
        Self { status: kind as i32, message }
    }
    /// This failure in other words.
    pub fn saying(&self, message: String) -> Self {
        Self { status: self.status, message }
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

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
