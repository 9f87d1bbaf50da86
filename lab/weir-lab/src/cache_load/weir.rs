//! `weir-lab-cache-weir`: the programs of `weir-lab-cache` on Weir, linked as the program's allocator.
#![allow(clippy::print_stdout)]

mod caches;
mod filler;
mod footprint;
mod program;
mod psi;
mod server;
mod tenant;
mod worker;

#[global_allocator]
static ALLOCATOR: weir::Weir = weir::Weir;

fn main() {
    program::main();
}
