//! Link arguments of `libweir.so`: what a malloc for any program needs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in [
        // Cargo names the file after the crate; programs that link with `-lweir` look for this name.
        "-Wl,-soname,libweir.so",
        // Unloading the allocator would leave every pointer in the process dangling.
        "-Wl,-z,nodelete",
        // A lazily bound symbol is resolved inside an allocation, and the loader may allocate to do so.
        "-Wl,-z,now",
        // Our constructor first, so that our fork handlers are registered first: `prepare` handlers
        // run in reverse order, and whatever another library's handler allocates must find the heap unlocked.
        "-Wl,-z,initfirst",
        // A name that nothing provides should fail here, not in a user's program.
        "-Wl,-z,defs",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
