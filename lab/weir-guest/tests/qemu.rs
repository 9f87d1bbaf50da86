//! The whole way: the image boots under QEMU, frees memory, and QEMU's resident set falls, or does not where it must
//! not. Without QEMU the tests say so.

use std::process::Command;

/// Runs the runner on the image that cargo built for these tests; `None` where there is no QEMU.
fn run(args: &[&str]) -> Option<String> {
    let image = env!("CARGO_BIN_EXE_weir-guest");
    let output = Command::new(env!("CARGO_BIN_EXE_weir-guest-run")).args(["--image", image]).args(args).output();
    let output = output.expect("cargo built the runner");
    let (said, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{said}");
    eprint!("{complaints}");
    if output.status.code() == Some(weir_testing::SKIPPED) {
        weir_testing::skip!("{complaints}");
        return None;
    }
    assert!(output.status.success(), "{}: {complaints}", output.status);
    Some(said.into_owned())
}

/// The values of a word in the rounds' lines.
fn values<'a>(said: &'a str, name: &str) -> Vec<&'a str> {
    let rounds = said.lines().filter(|line| line.starts_with("round="));
    rounds.filter_map(|line| line.split_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix('='))).collect()
}

fn percents(said: &str) -> Vec<f64> {
    values(said, "fallen_percent").into_iter().map(|value| value.parse().unwrap()).collect()
}

#[test]
#[ignore = "nightly: boots a guest under QEMU, and measures what its host gets back in a time"]
fn freed_memory_leaves_the_resident_set_and_memory_in_use_stays() {
    let Some(said) = run(&[]) else { return };
    assert_eq!(values(&said, "round"), ["calm", "pressure"]);
    assert!(percents(&said).into_iter().all(|percent| percent >= 90.0), "{:?}", percents(&said));
    assert!(!values(&said, "host_ms_to_90_percent").contains(&"never"));
    assert_eq!(said.matches(" wrong_blocks=0").count(), 2);
    assert!(said.contains("guest: weir-guest: end=good"));
}

#[test]
#[ignore = "nightly: boots a guest under QEMU, and measures what its host gets back in a time"]
fn without_reporting_it_stays() {
    let Some(said) = run(&["--no-reporting", "--memory", "192", "--touch", "96", "--keep", "8"]) else { return };
    assert!(said.contains("offers no free page reporting"));
    assert_eq!(percents(&said).len(), 2);
    assert!(percents(&said).into_iter().all(|percent| percent <= 5.0), "{:?}", percents(&said));
}

#[test]
#[ignore = "nightly: boots a guest under QEMU, and measures what its host gets back in a time"]
fn without_page_poison_contents_are_undefined_and_memory_leaves_nevertheless() {
    let Some(said) = run(&["--no-poison"]) else { return };
    assert!(said.contains("contents=Undefined"));
    assert!(percents(&said).into_iter().all(|percent| percent >= 80.0), "{:?}", percents(&said));
    assert_eq!(said.matches(" wrong_blocks=0").count(), 2);
    assert!(said.contains("guest: weir-guest: end=good"));
}
