//! Models of the lock-free protocols, one for each in `tests`, most of them over the product's own source file. The
//! model checker `loom` runs every interleaving. `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
//!
//! [`sync`], [`lock`] and [`futex`] take the place of what those files are made of.

#[cfg(loom)]
pub mod futex;
#[cfg(loom)]
pub mod lock;
#[cfg(loom)]
pub mod sync;

/// Runs the ignored test `name` of this binary, which must fail and say `why`. In a process of its own: the checker cannot
/// unwind threads that sleep, and aborts.
pub fn must_fail(name: &str, why: &str) {
    let this = std::env::current_exe().unwrap();
    let run = std::process::Command::new(this).args(["--exact", name, "--ignored"]).output().unwrap();
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!run.status.success() && said.contains(why), "{name} is to fail with {why:?}, and said:\n{said}");
}
