//! The examples in `weir.h` compile with what it includes, and the headers that they name.

use std::fmt::Write;
use std::process::Command;

/// The lines of code in the comments: those that are indented by five.
fn examples() -> Vec<String> {
    let header = include_str!("../include/weir.h");
    let code = |line: &str| line.strip_prefix(" *     ").map(str::to_owned);
    let mut all = vec![String::new()];
    for line in header.lines() {
        match code(line).filter(|line| !line.starts_with(' ')) {
            Some(line) => writeln!(all.last_mut().unwrap(), "{}", line.replace("...", "return;")).unwrap(),
            None if all.last().is_some_and(|it| !it.is_empty()) => all.push(String::new()),
            None => {}
        }
    }
    all.retain(|example| example.contains(';') && example.contains("weir_"));
    all
}

#[test]
fn the_examples_compile_with_what_the_header_includes() {
    let examples = examples();
    assert_eq!(examples.len(), 2, "{examples:?}");
    for (number, example) in examples.iter().enumerate() {
        let others = if example.contains("<unistd.h>") { "#include <unistd.h>\n" } else { "" };
        let text = format!(
            "#include <weir.h>\n{others}void example(int fd);\nvoid example(int fd) {{\n(void)fd;\n{example}}}\n"
        );
        let source = format!("{}/example{number}.c", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&source, &text).unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
        match Command::new("cc").args(["-std=c99", "-fsyntax-only", "-I", include]).arg(&source).output() {
            Err(error) => weir_testing::skip!("no cc ({error}); Debian has it in build-essential"),
            Ok(made) => assert!(made.status.success(), "{text}{}", String::from_utf8_lossy(&made.stderr)),
        }
    }
}
