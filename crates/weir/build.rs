//! Says where evictable caches are plain caches with a bound: `cfg(plain)`. Everywhere but where Weir runs, and there too where
//! the environment has `WEIR_PLAIN_CACHES`, by which the plain ones are tested.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEIR_PLAIN_CACHES");
    println!("cargo::rustc-check-cfg=cfg(plain)");
    let is = |name, one_of: &[&str]| var(name).is_ok_and(|value| one_of.contains(&value.as_str()));
    let runs = is("CARGO_CFG_TARGET_OS", &["linux"]) && is("CARGO_CFG_TARGET_ARCH", &["x86_64", "aarch64"]);
    if !runs || var("WEIR_PLAIN_CACHES").is_ok() {
        println!("cargo::rustc-cfg=plain");
    }
}
