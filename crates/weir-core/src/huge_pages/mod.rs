//! Huge pages behind the heap, watched over time: those in little use are split, those that
//! the kernel filled up are found, and what is full and still gets one.

mod collapse;
mod khugepaged;
mod sparse;
mod watch;

pub(crate) use watch::{HugePages, Watch};
