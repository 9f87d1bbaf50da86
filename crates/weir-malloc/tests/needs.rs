//! Needs of the finished library of the machine's libc.

mod common;
use common::{describe, foreign, library};
use std::process::Command;

/// The newest version of glibc whose symbols the library asks for. The loader demands it whether the symbols are weak or
/// not: with an older glibc no program starts. DEPLOY.md says the same.
const NEWEST: (u32, u32) = (2, 16);

#[test]
fn no_newer_glibc_is_needed() {
    if foreign() {
        return weir_testing::skip!("another library is under test");
    }
    let Some(library) = library() else { return };
    let output = match Command::new("readelf").args(["--version-info", "--wide"]).arg(library).output() {
        Err(error) => return weir_testing::skip!("no readelf ({error}); Debian has it in binutils"),
        Ok(output) => output,
    };
    assert!(output.status.success(), "{}", describe(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let needs = text.split_once("Version needs section").expect("a section of needs").1;
    let versions: Vec<(u32, u32)> = needs.split("GLIBC_").skip(1).map(version).collect();
    assert_eq!(versions.iter().max(), Some(&NEWEST), "{needs}");
    assert!(!needs.contains("GLIBC_PRIVATE"), "{needs}");
}

/// The first two numbers of a version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(u32::MAX));
    (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(u32::MAX))
}
