//! Helpers that the tests of all crates share: skips that the gate counts, what is built for the tests, waits for events, and locks
//! on parts of the machine.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long an event that is sure to come may take. Only a test that fails waits so long, however slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The exit status by which a test program in C says that it skips (as in automake); its last line says why.
pub const SKIPPED: i32 = 77;

/// Says that this test, or a part of it, is skipped, and why: `skip!("no {tool}; Debian has it in binutils")`.
///
/// It is one line `skipped: TEST: WHY` on the real standard error, which the test runner captures of no test, so that
/// `cargo test` shows it. The gate adds these lines up.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => { $crate::say_skipped(&::std::format!($($why)*)) };
}

/// The function that [`skip!`] calls. `why` becomes one line.
pub fn say_skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main");
    let line = format!("skipped: {test}: {}\n", why.split_whitespace().collect::<Vec<_>>().join(" "));
    // One write: lines of tests that run at the same time do not mix. Not `eprintln`, which would be captured.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether a test program in C skipped, which is said: it ends with status 77, or a line of it begins with `SKIPPED: `.
/// A part that was skipped is said in the same way by a program that ends well.
pub fn program_skipped(name: &str, output: &Output) -> bool {
    let (whole, reasons) = skips(output);
    reasons.iter().for_each(|why| skip!("{name}: {why}"));
    whole
}

/// Whether a program skipped as a whole, and its reasons.
fn skips(output: &Output) -> (bool, Vec<String>) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let mut reasons: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("SKIPPED: ")).map(str::to_owned).collect();
    let whole = output.status.code() == Some(SKIPPED);
    if whole && reasons.is_empty() {
        reasons.push(format!("status {SKIPPED} without a line that says why"));
    }
    (whole, reasons)
}

/// Has a compiler build something. `false`: it is not there, or cannot, which is said.
pub fn compiles(compiler: &mut Command) -> bool {
    match compiler.output() {
        Ok(made) if made.status.success() => return true,
        Ok(made) => skip!("cc cannot build this: {}", String::from_utf8_lossy(&made.stderr)),
        Err(error) => skip!("no compiler ({error}); Debian has it in build-essential"),
    }
    false
}

/// `libweir.so`, built in the profile of this test, or in the one that `WEIR_TEST_PROFILE` names. Cargo does not build a cdylib
/// for integration tests, so they ask for it; when it is fresh, that costs nothing.
pub fn build_library() -> PathBuf {
    // target/PROFILE/deps/this-test
    let executable = env::current_exe().expect("a running test has a path");
    let own = executable.ancestors().nth(2).expect("tests run from target/PROFILE/deps");
    let target = own.parent().expect("a profile's directory is inside the target directory");
    let directory = env::var_os("WEIR_TEST_PROFILE").map_or_else(|| own.to_owned(), |profile| target.join(profile));
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let output = Command::new(env!("CARGO"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-malloc"))
        .args(["build", "--quiet", "--package", "weir-malloc", "--lib", "--profile", profile, "--target-dir"])
        .arg(target)
        // As the workspace says, whatever tests are built with: the library has nothing that unwinds.
        .env("CARGO_PROFILE_DEV_PANIC", "abort")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "building libweir: {}", String::from_utf8_lossy(&output.stderr));
    directory.join("libweir.so")
}

/// Waits until `done`, which is `what`: an event that is sure to come. It panics after five minutes.
#[track_caller]
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    assert!(comes_within(PATIENCE, done), "waited {PATIENCE:?} for {what}");
}

/// Waits until `used`, the objects of a cache in use, is `n`. An object that reclaim has in hand on another thread
/// counts as in use for that moment.
#[track_caller]
pub fn wait_for_used(used: impl Fn() -> usize, n: usize) {
    assert!(comes_within(PATIENCE, || used() == n), "{} objects are in use, not {n}", used());
}

fn comes_within(bound: Duration, mut done: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    loop {
        // Asked once more after the bound: the machine may have stood still meanwhile.
        let is_late = since.elapsed() >= bound;
        if done() {
            return true;
        }
        if is_late {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A part of the machine that a test needs for itself. Other tests that ask for the same name wait, in whatever process
/// and of whatever user they run. The kernel gives it back when the process ends.
#[must_use = "the lock is held until this is dropped"]
pub struct Lock {
    _file: File,
}

/// Takes `name` for this test alone. The names in use:
///
/// - `pressure`: the test makes memory pressure that the machine's other processes feel, or must not feel any;
/// - `huge pages`: it changes, or counts on, the system's huge pages or their mode;
/// - `processes`: it counts all processes that run on Weir;
/// - `same-page merging`: it switches the kernel's on.
pub fn lock(name: &str) -> Lock {
    let file = lock_file(name);
    file.lock().expect("a lock of a file");
    Lock { _file: file }
}

/// Takes `name` together with all others that take it shared: none that takes it alone runs meanwhile.
pub fn lock_shared(name: &str) -> Lock {
    let file = lock_file(name);
    file.lock_shared().expect("a lock of a file");
    Lock { _file: file }
}

fn lock_file(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("weir-test-{}", name.replace(' ', "-")));
    // It may be another user's: reading is enough for a lock.
    if let Ok(file) = OpenOptions::new().read(true).open(&path) {
        return file;
    }
    let made = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(&path);
    let file = made.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let _ = file.set_permissions(std::fs::Permissions::from_mode(0o644));
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        let name = format!("own {}", std::process::id());
        let first = lock(&name);
        let has_second = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _held = lock(&name);
                has_second.store(true, Ordering::SeqCst);
            });
            assert!(lock_file(&name).try_lock_shared().is_err(), "held alone");
            assert!(!has_second.load(Ordering::SeqCst));
            drop(first);
            second.join().unwrap();
        });
        let (_one, _other) = (lock_shared(&name), lock_shared(&name));
        let _ = std::fs::remove_file(std::env::temp_dir().join(format!("weir-test-{}", name.replace(' ', "-"))));
    }

    #[test]
    fn a_program_skips_by_its_status_and_a_part_by_its_words() {
        let run = |script: &str| skips(&Command::new("sh").args(["-c", script]).output().unwrap());
        let said = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(run("true"), (false, said(&[])));
        assert_eq!(run("echo SKIPPED; exit 1"), (false, said(&[])));
        assert_eq!(run("echo 'SKIPPED: a part'"), (false, said(&["a part"])));
        assert_eq!(run("echo 'SKIPPED: all of it' >&2; exit 77"), (true, said(&["all of it"])));
        assert_eq!(run("exit 77"), (true, said(&["status 77 without a line that says why"])));
    }

    #[test]
    fn a_wait_ends_with_the_event_or_with_its_bound() {
        let mut asked = 0;
        assert!(comes_within(PATIENCE, || {
            asked += 1;
            asked == 3
        }));
        assert!(!comes_within(Duration::ZERO, || false));
        assert!(comes_within(Duration::ZERO, || true), "asked once more after the bound");
    }
}
