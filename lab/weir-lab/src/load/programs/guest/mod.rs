//! The programs of a guest: its first process, and what that runs in place of another program.

pub mod groups;
pub mod init;
pub mod live_shrink;
