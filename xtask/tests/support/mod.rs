//! An installed Weir, in a directory of the test's own.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;

/// A directory in which things are installed, and where.
pub struct Place {
    pub root: tempfile::TempDir,
    /// `--prefix`.
    pub prefix: PathBuf,
    /// `--destdir`, if given.
    pub destdir: Option<PathBuf>,
}

impl Place {
    /// A prefix in a directory of its own.
    pub fn with_prefix() -> Self {
        let root = directory();
        let prefix = root.path().canonicalize().expect("its path").join("opt/weir");
        Self { root, prefix, destdir: None }
    }

    /// A directory that stands for /.
    pub fn with_destdir(prefix: &str) -> Self {
        let root = directory();
        let destdir = Some(root.path().canonicalize().expect("its path").join("stage"));
        Self { root, prefix: prefix.into(), destdir }
    }

    /// The command with this place's options.
    pub fn xtask(&self, command: &str) -> Command {
        build_once();
        self.unbuilt(command)
    }

    fn unbuilt(&self, command: &str) -> Command {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.arg(command).arg("--prefix").arg(&self.prefix).env_remove("LD_PRELOAD");
        if let Some(destdir) = &self.destdir {
            xtask.arg("--destdir").arg(destdir);
        }
        if command == "install" {
            xtask.args(["--profile", &profile(), "--no-build"]);
        }
        xtask
    }

    /// Installs with further options.
    pub fn install(&self, more: &[&str]) {
        let output = self.xtask("install").args(more).output().expect("xtask starts");
        assert!(output.status.success(), "{}", describe(&output));
    }

    pub fn uninstall(&self) {
        let output = self.xtask("uninstall").output().expect("xtask starts");
        assert!(output.status.success(), "{}", describe(&output));
    }

    /// A file below the prefix.
    pub fn file(&self, path: &str) -> PathBuf {
        let root = self.destdir.as_deref().unwrap_or(Path::new("/"));
        root.join(self.prefix.strip_prefix("/").expect("an absolute prefix")).join(path)
    }

    /// Everything below the test's directory: mode, and where a link leads to.
    pub fn listing(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        list(self.root.path(), self.root.path(), &mut found);
        found
    }
}

fn list(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(root).expect("below the root").display().to_string();
        let about = std::fs::symlink_metadata(&path).expect("it is there");
        let what = match std::fs::read_link(&path) {
            Ok(to) => format!("-> {}", to.display()),
            Err(_) => format!("{:o}", about.permissions().mode() & 0o7777),
        };
        found.insert(name, what);
        if about.is_dir() {
            list(root, &path, found);
        }
    }
}

/// The profile of this test, or the one that `WEIR_TEST_PROFILE` names.
pub fn profile() -> String {
    let own = if env!("CARGO_BIN_EXE_xtask").contains("/debug/") { "dev" } else { "release" };
    std::env::var("WEIR_TEST_PROFILE").unwrap_or_else(|_| own.to_owned())
}

/// Builds what is installed, by installing it.
fn build_once() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let place = Place::with_prefix();
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(["install", "--profile", &profile(), "--prefix"]).arg(&place.prefix);
        let output = xtask.output().expect("xtask starts");
        assert!(output.status.success(), "{}", describe(&output));
        assert!(place.file("bin/weir").is_file(), "{}", describe(&output));
    });
}

/// A directory beside what was built: there is room for it, where the system's own directory of temporary files may be small.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Text of what a run says.
pub fn describe(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n--- stdout\n{out}\n--- stderr\n{err}", output.status)
}

/// Runs a command that must succeed; what it prints.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Whether this machine has a program; if not, that is said.
pub fn has(program: &str) -> bool {
    let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        weir_testing::skip!("no {program} here");
    }
    there
}
