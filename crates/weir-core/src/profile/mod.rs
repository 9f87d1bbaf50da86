//! The heap profile: which call stacks allocated what, and what of it is still live, by samples.
//!
//! [`interval`] says which allocation is sampled and what a sample stands for. [`pace`] says how far samples are apart.
//! [`recorder`] keeps what was sampled: the [`layout`] that others read, filled by `stacks`, and the `samples` by their
//! blocks' addresses.

mod filter;
pub mod interval;
pub mod layout;
pub mod pace;
pub mod recorder;
mod samples;
mod stacks;
