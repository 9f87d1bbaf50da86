//! `weir-lab-cache`: programs with a cache of their own that are measured, on the C library's malloc or on what is
//! preloaded. Apart from `weir-lab-load`, so that no cache's code stands in what that program measures.
#![allow(clippy::print_stdout)]

mod caches;
mod filler;
mod footprint;
mod program;
mod psi;
mod server;
mod tenant;
mod worker;

fn main() {
    program::main();
}
