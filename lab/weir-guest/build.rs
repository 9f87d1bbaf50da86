//! How the kernel image is linked: the host's own target, but no start files, no libc, and a layout of its own.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=image.ld");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("ARCH") != "x86_64" || target("OS") != "linux" {
        return; // The image is a program that says so there.
    }
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR for build scripts");
    let script = Path::new(&root).join("image.ld");
    let args = [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        // One loadable piece in file order; nothing is paged in by anybody.
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,norelro",
    ];
    let script = format!("-Wl,-T,{}", script.display());
    for arg in args.into_iter().chain([script.as_str()]) {
        println!("cargo:rustc-link-arg-bin=weir-guest={arg}");
    }
}
