//! `weir doctor` from outside.

use crate::run::bench::Running;

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn doctor(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("doctor").args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_table_is_aligned_and_names_the_mechanisms() {
    let (status, text) = doctor(&[]);
    assert_eq!(status, Some(0), "{text}");
    for name in ["kernel", "rseq", "mm_cid", "membarrier", "khugepaged", "process_madvise", "PSI, system", "cgroup"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} is missing:\n{text}");
    }
    let columns: Vec<_> = text.lines().map(|l| l.find(" ok ").or(l.find(" limited "))).collect();
    assert!(columns.iter().all(|c| c.is_some() && *c == columns[0]), "{text}");
}

#[test]
fn json_says_the_same() {
    let (status, json) = doctor(&["--json"]);
    assert_eq!(status, Some(0));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let checks = value.as_array().unwrap();
    let (_, text) = doctor(&[]);
    assert_eq!((checks.len(), text.lines().count() >= 12), (text.lines().count(), true), "{json}\n{text}");
    for (check, line) in checks.iter().zip(text.lines()) {
        let of = |name: &str| check[name].as_str().unwrap();
        // Columns are apart by two blanks.
        let rest = line.strip_prefix(of("name")).unwrap_or_else(|| panic!("{check}: {line}"));
        let rest = rest.trim_start().strip_prefix(of("state")).unwrap_or_else(|| panic!("{check}: {line}"));
        let rest = rest.trim_start().strip_prefix(of("found")).unwrap_or_else(|| panic!("{check}: {line}"));
        assert_eq!(rest.trim(), of("effect"), "{line}");
    }
}

#[test]
fn a_small_address_space_is_told_and_refused_by_nothing() {
    let script = format!("ulimit -v 40000; exec {} doctor", env!("CARGO_BIN_EXE_weir"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find(|line| line.starts_with("address space")).unwrap_or_default();
    assert!(line.contains(" limited ") && line.contains("limit 39.1 MiB"), "{text}");
}

/// The limit leaves no room for a thread's stack.
#[test]
fn a_thread_that_is_refused_is_told_with_the_reason() {
    let script = format!("ulimit -d 2000; exec {} doctor", env!("CARGO_BIN_EXE_weir"));
    // A backtrace that finds no memory waits for itself.
    let output = Command::new("sh").args(["-c", &script]).env("RUST_BACKTRACE", "0").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find(|line| line.starts_with("own descriptors")).unwrap_or_default();
    assert!(line.contains(" limited ") && line.contains("cannot start a thread: "), "{text}");
}

#[test]
fn a_library_that_cannot_be_preloaded_is_told_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let with_a_blank = folder.path().join("a b.so");
    std::fs::write(&with_a_blank, "x").unwrap();
    // A file that the kernel writes as it is read has no pages to map.
    for (library, why) in
        [(with_a_blank.as_path(), "a blank or a colon"), (Path::new("/proc/self/status"), "cannot map it")]
    {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = doctor.arg("doctor").env("WEIR_LIB", library).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.starts_with("libweir.so")).unwrap_or_default();
        assert!(line.contains(" limited ") && line.contains(why), "{text}");
    }
}

#[test]
fn a_full_standard_output_is_said_and_a_closed_pipe_is_not() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("doctor").stdout(full).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), text.starts_with("weir: cannot write")), (Some(125), true), "{text}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("settings").stdout(writer).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Root looks, of whom a setuid program of root's has no more rights; it runs for another user.
#[test]
fn a_running_program_with_rights_of_its_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for (bits, group) in [(0o4755, None), (0o2755, Some(12_345))] {
        let program = folder.path().join("sleep");
        std::fs::copy("/bin/sleep", &program).unwrap();
        if chown(&program, Some(0), group).is_err() {
            return weir_testing::skip!("only root makes a setuid program of root's");
        }
        std::fs::set_permissions(&program, PermissionsExt::from_mode(bits)).unwrap();
        let mut command = Command::new(&program);
        command.arg("600").process_group(0).env("LD_PRELOAD", "/no/such/libweir.so").uid(65_534).gid(65_534);
        let Ok(child) = command.spawn().map(Running) else {
            return weir_testing::skip!("another user cannot reach it");
        };
        let ids = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let (_, text) = doctor(&[&child.id().to_string()]);
        drop(child);
        let has_rights = ids.contains("Uid:\t65534\t0\t") || ids.contains("Gid:\t65534\t12345\t");
        if !has_rights {
            return weir_testing::skip!("setuid files do not count here");
        }
        assert!(text.contains("runs with more rights than its caller (setuid, "), "{text}");
    }
}
