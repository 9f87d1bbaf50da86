//! A test in a process of its own.

use std::process::Command;

/// Runs the calling test in another process, if this is not that already. What it skips there is said here.
pub fn in_child(work: impl FnOnce()) {
    const IS_CHILD: &str = "WEIR_TEST_IS_CHILD";
    if std::env::var_os(IS_CHILD).is_some() {
        return work();
    }
    let (own, test) = (std::env::current_exe().unwrap(), std::thread::current());
    let mut command = Command::new(own);
    let child = command.args(["--exact", test.name().unwrap(), "--nocapture"]).env(IS_CHILD, "1").output().unwrap();
    let said = [child.stdout, child.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(child.status.success() && said.contains("1 passed"), "{:?}\n{said}", child.status);
    said.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| println!("{line}"));
}
