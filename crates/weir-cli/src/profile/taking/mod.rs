//! Where a profile comes from: a running process, or the file that one wrote at its end.

pub mod recording;
mod switch;
mod table;
pub mod text_file;
