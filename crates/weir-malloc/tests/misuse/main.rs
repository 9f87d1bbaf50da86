//! Wrong calls, of the malloc family and of `weir.h`: each is named, and none is obeyed.

#[path = "../common/mod.rs"]
mod common;
mod guard;
mod standard_error;
mod wrong_frees;
mod wrong_objects;
