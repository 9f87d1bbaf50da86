//! Link arguments of `libweir.so`: what a malloc for any program needs. And the name under which the loader finds it.

use std::env;
use std::os::unix::fs::symlink;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo says the version");
    let soname = format!("libweir.so.{version}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    for argument in [
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
    link_beside_the_library(&soname);
}

/// The loader looks for the soname; Cargo names the file without the version. With a link beside it a program that was
/// linked with `-L target/release -lweir` runs there as well. Where there can be none (another layout of Cargo's, a
/// file system without links) everything but that works.
fn link_beside_the_library(soname: &str) {
    // target/PROFILE/build/THIS-PACKAGE/out
    let out = env::var_os("OUT_DIR").expect("cargo says where");
    let Some(build) = Path::new(&out).ancestors().nth(2).filter(|folder| folder.ends_with("build")) else { return };
    let link = build.with_file_name(soname);
    if let Err(why) = symlink("libweir.so", &link)
        && why.kind() != std::io::ErrorKind::AlreadyExists
    {
        println!("cargo:warning=no link {}: {why}", link.display());
    }
}
