//! Parts that every other part uses; first of all why the program cannot go on: one line for its
//! user.

pub mod machine;
pub mod shares;
pub mod size;

use std::fmt::{self, Display};

/// One line that says what is wrong and, where it can, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure that says `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
    /// For `map_err`: `what` could not be done, and the error below says why.
    pub fn because<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |why| Self(format!("{what}: {why}"))
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
