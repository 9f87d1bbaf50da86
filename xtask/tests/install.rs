//! `cargo xtask install` and `uninstall`: what is there afterwards, and what is not.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use support::{Place, describe, run};

/// Below the prefix, with their modes. Man pages are those that the programs write.
const FILES: [(&str, &str); 19] = [
    ("bin/weir", "755"),
    ("bin/weir-nbd", "755"),
    ("include/weir.h", "644"),
    ("include/weir.hpp", "644"),
    ("lib/cmake/weir/weir-config-version.cmake", "644"),
    ("lib/cmake/weir/weir-config.cmake", "644"),
    ("lib/libweir.a", "644"),
    ("lib/libweir.so", "-> libweir.so.0"),
    ("lib/libweir.so.0", "644"),
    ("lib/pkgconfig/weir.pc", "644"),
    ("share/bash-completion/completions/weir", "644"),
    ("share/bash-completion/completions/weir-nbd", "644"),
    ("share/doc/weir/LICENSE-APACHE", "644"),
    ("share/doc/weir/LICENSE-MIT", "644"),
    ("share/fish/vendor_completions.d/weir.fish", "644"),
    ("share/fish/vendor_completions.d/weir-nbd.fish", "644"),
    ("share/weir/installed-files", "644"),
    ("share/zsh/site-functions/_weir", "644"),
    ("share/zsh/site-functions/_weir-nbd", "644"),
];

const PAGES: [&str; 9] = [
    "weir",
    "weir-run",
    "weir-stat",
    "weir-ctl",
    "weir-trace",
    "weir-doctor",
    "weir-nbd",
    "weir-nbd-serve",
    "weir-nbd-stat",
];

#[test]
fn every_file_is_in_its_place_with_its_mode_whatever_the_umask() {
    let place = Place::with_destdir("/usr/local");
    let install = place.xtask("install");
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(install.get_program()).args(install.get_args());
    run(&mut shell);
    let mut found = place.listing();
    let pages = place.file("share/man/man1");
    for page in PAGES {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).expect(page);
        assert!(text.contains(".TH") && text.contains(page), "{page}: {text}");
    }
    found.retain(|path, mode| {
        let is_directory = place.root.path().join(path).is_dir();
        assert!(!is_directory || mode == "755", "{path} has mode {mode}");
        assert!(!path.contains("man1/") || mode == "644", "{path} has mode {mode}");
        !is_directory && !path.contains("man1/")
    });
    let wanted = FILES.map(|(path, mode)| (format!("stage/usr/local/{path}"), mode.to_string()));
    assert_eq!(found, wanted.into_iter().collect());
}

#[test]
fn a_second_time_changes_nothing_and_uninstall_leaves_nothing() {
    for place in [Place::with_prefix(), Place::with_destdir("/usr")] {
        let before = place.listing();
        place.install(&[]);
        let first = place.listing();
        let list = std::fs::read(place.file("share/weir/installed-files")).expect("the list");
        place.install(&[]);
        assert_eq!(place.listing(), first);
        assert_eq!(std::fs::read(place.file("share/weir/installed-files")).expect("the list"), list);
        place.uninstall();
        assert_eq!(place.listing(), before);
    }
}

#[test]
fn what_was_there_before_or_came_later_stays() {
    let place = Place::with_prefix();
    std::fs::create_dir_all(place.file("share/man")).expect("a directory");
    std::fs::create_dir_all(place.file("bin")).expect("a directory");
    std::fs::write(place.file("bin/other"), "").expect("a file");
    let before = place.listing();
    place.install(&[]);
    std::fs::write(place.file("lib/other.so"), "").expect("a file");
    // A file that its owner has removed already is no obstacle.
    std::fs::remove_file(place.file("include/weir.h")).expect("the header");
    place.uninstall();
    let mut left = place.listing();
    left.retain(|path, _| !before.contains_key(path));
    assert_eq!(left.into_keys().collect::<Vec<_>>(), ["opt/weir/lib", "opt/weir/lib/other.so"]);
}

#[test]
fn another_layout_replaces_the_one_before() {
    let place = Place::with_prefix();
    let before = place.listing();
    place.install(&[]);
    place.install(&["--libdir", "lib/x86_64-linux-gnu"]);
    assert!(!place.file("lib/libweir.so.0").exists() && !place.file("lib/libweir.so").exists());
    assert!(place.file("lib/x86_64-linux-gnu/libweir.so.0").is_file());
    let text = std::fs::read_to_string(place.file("lib/x86_64-linux-gnu/pkgconfig/weir.pc")).expect("weir.pc");
    assert!(text.contains("libdir=${prefix}/lib/x86_64-linux-gnu\n"), "{text}");
    place.uninstall();
    assert_eq!(place.listing(), before);
}

#[test]
fn a_program_that_runs_keeps_its_library() {
    let place = Place::with_prefix();
    place.install(&[]);
    let library = place.file("lib/libweir.so.0");
    let inode = || library.metadata().expect("the library").ino();
    let first = inode();
    let mut sleeper = Command::new("sleep").arg("3600").env("LD_PRELOAD", &library).spawn().expect("sleep");
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", sleeper.id())).unwrap_or_default();
    weir_testing::wait_until("the library in the program", || maps().contains(library.to_str().expect("its name")));
    place.install(&[]);
    let ended = sleeper.try_wait().expect("its state");
    sleeper.kill().expect("it runs");
    sleeper.wait().expect("its end");
    assert!(ended.is_none(), "{ended:?}");
    assert_ne!(inode(), first, "a new file, not new bytes in a file that programs have mapped");
}

/// The one line that a command which must fail prints.
fn refusal(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((text.lines().count(), output.stdout.len()), (1, 0), "{}", describe(&output));
    text
}

#[test]
fn where_it_cannot_write_it_says_so_in_a_line_and_changes_nothing() {
    // A file in the place of the last directory that is made.
    let place = Place::with_prefix();
    std::fs::create_dir_all(place.file("share")).expect("a directory");
    std::fs::write(place.file("share/weir"), "").expect("a file");
    let before = place.listing();
    let text = refusal(&mut place.xtask("install"));
    assert!(text.starts_with("xtask: cannot make ") && text.contains("share/weir"), "{text}");
    assert_eq!(place.listing(), before);
    // A directory in the place of a file.
    let place = Place::with_prefix();
    std::fs::create_dir_all(place.file("include/weir.h")).expect("a directory");
    let before = place.listing();
    let text = refusal(&mut place.xtask("install"));
    assert!(text.starts_with("xtask: cannot write ") && text.contains("it is a directory"), "{text}");
    assert_eq!(place.listing(), before);
}

#[test]
fn without_the_right_to_write_it_says_so_in_a_line() {
    // SAFETY: it only returns a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root && !support::has("setpriv") {
        return;
    }
    let place = Place::with_prefix();
    std::fs::create_dir_all(&place.prefix).expect("a directory");
    place.install(&[]);
    let close = |mode| std::fs::set_permissions(place.file("bin"), std::fs::Permissions::from_mode(mode));
    close(0o555).expect("its mode");
    std::fs::set_permissions(place.root.path(), std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let before = place.listing();
    for command in ["install", "uninstall"] {
        let xtask = place.xtask(command);
        let mut unprivileged = Command::new(if is_root { "setpriv" } else { "env" });
        if is_root {
            // Root without its rights over other users' files.
            unprivileged.args(["--bounding-set=-all", "--inh-caps=-all"]);
        }
        let text = refusal(unprivileged.arg(xtask.get_program()).args(xtask.get_args()));
        assert!(text.contains("Permission denied") && text.contains("/bin"), "{text}");
        assert_eq!(place.listing(), before);
    }
    close(0o755).expect("its mode");
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place::with_prefix();
    let text = refusal(&mut place.xtask("uninstall"));
    assert!(text.starts_with("xtask: nothing is installed there"), "{text}");
    for wrong in [["--prefix", "usr"], ["--prefix", "/a b"], ["--prefix", "/a/../b"], ["--libdir", "/lib"]] {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = xtask.args(["install", "--no-build"]).args(wrong).output().expect("xtask starts");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", describe(&output));
    }
    // A list that names what is not Weir's.
    place.install(&[]);
    let list = place.file("share/weir/installed-files");
    std::fs::write(&list, "/etc/passwd\n").expect("the list");
    let text = refusal(&mut place.xtask("uninstall"));
    assert!(text.contains("damaged") && text.contains("/etc/passwd"), "{text}");
    assert!(place.file("bin/weir").exists());
}
