//! A library with the crate inside, in a program without: the host unloads it, and goes on.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_testing::compiles;

/// A library of this folder, built in the profile of this test. Cargo builds examples for the tests of a whole package only.
fn plugin(name: &str) -> PathBuf {
    // target/PROFILE/deps/this-test
    let executable = env::current_exe().expect("a running test has a path");
    let directory = executable.ancestors().nth(2).expect("tests run from target/PROFILE/deps");
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--example", name, "--profile", profile, "--target-dir"])
        .arg(directory.parent().expect("a profile's directory is inside the target directory"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "building {name}: {}", String::from_utf8_lossy(&output.stderr));
    directory.join("examples").join(format!("lib{name}.so"))
}

fn host() -> Option<PathBuf> {
    let host = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unload-host");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unload/host.c");
    compiles(Command::new("cc").args(["-O1", "-Wall", "-Werror"]).arg(source).arg("-o").arg(&host).arg("-ldl"))
        .then_some(host)
}

#[test]
fn a_host_unloads_a_library_with_weir_inside_and_forks() {
    let Some(host) = host() else { return };
    for name in ["weir_plugin", "weir_plugin_on_weir"] {
        let plugin = plugin(name);
        // By heap::alloc, with a cache, and with what Rust's own library allocates.
        for way in ["0", "1", "2"] {
            let output = Command::new(&host).arg(way).arg(&plugin).output().expect("the host starts");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{name}, way {way}: {}, {said}", output.status);
        }
    }
}

#[test]
fn a_host_that_has_cleared_its_environment_has_a_whole_heap() {
    let Some(host) = host() else { return };
    let output = Command::new(&host).arg("0").arg(plugin("weir_plugin")).env("WEIR_TEST_CLEARS", "1").output();
    let output = output.expect("the host starts");
    assert!(output.status.success(), "{}, {}", output.status, String::from_utf8_lossy(&output.stdout));
}

/// Each has a heap, and neither may begin where the other did.
#[test]
fn without_chance_in_addresses_two_libraries_with_weir_inside_have_memory() {
    let Some(host) = host() else { return };
    let plugins = ["weir_plugin", "weir_plugin_on_weir"].map(plugin);
    let without_chance = |words: &[&Path]| Command::new("setarch").arg("-R").args(words).output();
    if !without_chance(&[Path::new("true")]).is_ok_and(|output| output.status.success()) {
        return weir_testing::skip!("no setarch, or it may not switch chance off");
    }
    let output = without_chance(&[&host, Path::new("0"), &plugins[0], &plugins[1]]).expect("setarch starts");
    assert!(output.status.success(), "{}, {}", output.status, String::from_utf8_lossy(&output.stdout));
}
