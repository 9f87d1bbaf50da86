//! `weir run`: the command from outside, and over programs of many processes.

pub mod bench;
mod command;
mod stopping;
mod tree;
