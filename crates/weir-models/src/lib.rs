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

/// Runs every interleaving of `model`; with a number, those alone in which threads are switched at most so often where nothing
/// forces it.
#[cfg(loom)]
pub fn check(switches: impl Into<Option<usize>>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = switches.into();
    builder.check(model);
}

/// Runs `flawed`, which must fail and say `why`. In a process of its own, of the calling test alone: the checker cannot unwind
/// threads that sleep, and aborts.
#[track_caller]
pub fn must_fail(why: &str, flawed: impl FnOnce()) {
    /// In that process: the line of the call that it is for.
    const LINE: &str = "WEIR_MODELS_LINE";
    let line = std::panic::Location::caller().line().to_string();
    match std::env::var(LINE) {
        Ok(wanted) if wanted == line => return flawed(),
        Ok(_) => return,
        Err(_) => {}
    }
    let (this, test) = (std::env::current_exe().unwrap(), std::thread::current());
    let run =
        std::process::Command::new(this).args(["--exact", test.name().unwrap()]).env(LINE, line).output().unwrap();
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!run.status.success() && said.contains(why), "it is to fail with {why:?}, and said:\n{said}");
}
