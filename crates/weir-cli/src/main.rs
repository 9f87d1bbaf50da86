//! The `weir` command: all of it is in the library beside this file.

/// Has a panic end the process, as the workspace's profile does. `cargo install` builds without that: there a panic would end one
/// thread, and the command would go on without it.
#[cfg(panic = "unwind")]
fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        tell(what);
        std::process::abort();
    }));
}

fn main() {
    #[cfg(panic = "unwind")]
    abort_on_panic();
    weir_cli::main()
}
