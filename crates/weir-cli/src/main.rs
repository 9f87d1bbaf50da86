//! The `weir` command: all of it is in the library beside this file.

fn main() {
    weir_cli::main()
}
