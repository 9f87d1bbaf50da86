//! Guarded sampling: one allocation in `guard_every` gets a page of its own between two that cannot be touched. So the
//! program is stopped at the instruction that writes past a block, or uses one that was freed. LLVM's GWP-ASan is the
//! model. The chance that one run finds an error is small, that one of a thousand machines finds it is not.
//!
//! | file | what is in it |
//! |---|---|
//! | [`choice`] | which allocation is guarded |
//! | [`slots`] | the pages, and what is known of each block |
//! | `word` | which thread may use a slot |
//! | [`blocks`] | allocation and free of guarded blocks |
//! | `report` | what is said of an error, with the stacks of the allocation and of the free |
//! | `fault` | the handler of the signal that a wrong access raises |
//! | `own_stack` | the stack on which that is said |
//! | [`switch`] | on and off, as the setting says |

pub mod blocks;
pub mod choice;
mod fault;
mod own_stack;
mod report;
pub mod slots;
pub mod switch;
mod word;
