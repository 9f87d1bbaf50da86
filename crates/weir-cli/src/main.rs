//! The `weir` command: all of it is in the library beside this file.

/// What a thread takes is counted: `weir profile` bounds what reading object files takes.
#[global_allocator]
static HEAP: weir_cli::Counted = weir_cli::Counted;

fn main() {
    weir_cli::main()
}
