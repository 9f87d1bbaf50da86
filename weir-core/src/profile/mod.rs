//! The heap profile: which call stacks allocated what, and what of it is still live, by samples.

pub mod layout;
