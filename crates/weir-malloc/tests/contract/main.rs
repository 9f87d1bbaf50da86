//! The contract of malloc as C and C++ programs see it: the standards, limits, places, and what is said of the environment.

mod address_space;
#[path = "../common/mod.rs"]
mod common;
mod environment;
mod limits;
mod standards;
