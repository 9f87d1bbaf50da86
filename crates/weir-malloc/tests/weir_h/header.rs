//! The header `weir.h`: it compiles with every warning, declares what the library exports, and has examples that compile.

use crate::common::{describe, foreign, library};
use std::fmt::Write;
use std::process::Command;

/// The lines of code in the comments: those that are indented by five.
fn examples() -> Vec<String> {
    let header = include_str!("../../include/weir.h");
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

/// The header is C99 and C++17, also for whoever compiles with every warning.
#[test]
fn the_header_compiles_with_every_warning() {
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let warnings =
        ["-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Wold-style-cast", "-Wstrict-prototypes", "-Werror"];
    let cases = [("cc", "c", "-std=c99"), ("g++", "c++", "-std=c++17"), ("g++", "c++", "-std=c++11")];
    let source = format!("{}/header.c", env!("CARGO_TARGET_TMPDIR"));
    // Twice, and with nothing before it.
    let text = "#include <weir.h>\n#include \"weir.h\"\nint main(void) { return WEIR_VERSION_MAJOR; }\n";
    std::fs::write(&source, text).expect("the target directory can be written");
    for (compiler, language, standard) in cases {
        // Some warnings are of one of the two languages alone.
        let other = if language == "c" { "-Wold-style-cast" } else { "-Wstrict-prototypes" };
        let mut command = Command::new(compiler);
        command.args(["-x", language, standard, "-fsyntax-only", "-I", include]);
        command.args(warnings.iter().filter(|&&warning| warning != other));
        match command.arg(&source).output() {
            Err(error) => weir_testing::skip!("no {compiler} ({error}); Debian has it in build-essential"),
            Ok(output) => assert!(output.status.success(), "{compiler} {standard}: {}", describe(&output)),
        }
    }
}

/// The header declares the functions that the library exports, and no others.
#[test]
fn the_header_declares_what_the_library_exports() {
    if foreign() {
        weir_testing::skip!("the functions are Weir's");
        return;
    }
    let library = library().expect("Weir's own");
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output() else {
        weir_testing::skip!("no nm; Debian has it in binutils");
        return;
    };
    let names = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("weir_")).map(str::to_owned).collect()
    };
    let exported = names(&String::from_utf8_lossy(&output.stdout));
    // A declaration begins a line, with a type before the name.
    let declarations = include_str!("../../include/weir.h").lines().filter_map(|line| line.split_once('('));
    let is_code = |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.starts_with("typedef");
    let declared =
        declarations.filter(|(line, _)| is_code(line)).filter_map(|(line, _)| line.rsplit([' ', '*']).next());
    assert_eq!(names(&declared.collect::<Vec<_>>().join(" ")), exported);
    assert!(exported.len() >= 25, "{exported:?}");
}
