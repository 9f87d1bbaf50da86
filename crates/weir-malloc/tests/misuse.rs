//! Wrong calls of `weir.h`: what can be refused is refused with `errno`, the rest is named and ends the process.
//! Nothing is obeyed, nothing passes unseen, and no dtor is called with what is not an object.

mod common;
use common::{Kind, Mode, compile, describe, foreign, passes, run};
use std::os::unix::process::ExitStatusExt;

const SIGABRT: i32 = 6;

fn refused_with_errno(mode: Mode) {
    passes(Kind::C, "refused.c", &[], mode);
}

fn settings_and_figures_by_name(mode: Mode) {
    passes(Kind::C, "ctl.c", &[], mode);
}

fn what_is_right_is_not_named(mode: Mode) {
    passes(Kind::C, "wrong_object.c", &["right"], mode);
}

in_all_modes! { refused_with_errno settings_and_figures_by_name what_is_right_is_not_named }

/// The process must abort, and its last words name the address, what is wrong with it, and what to do. Where the
/// setting says so they are said, and the call is ignored.
fn is_named(which: &str, words: &[&str]) {
    let Some(program) = compile(Kind::C, "wrong_object.c") else { return };
    if foreign() {
        weir_testing::skip!("{which}: the functions are Weir's");
        return;
    }
    for mode in [Mode::Plain, Mode::NoRseq] {
        let output = run(&program, &[which], mode, &[]);
        check_message(which, &output, words);
        // `timeout` reports its child's signal as its own.
        let aborted = output.status.signal() == Some(SIGABRT) || output.status.code() == Some(128 + SIGABRT);
        assert!(aborted, "{which} in mode {mode:?}: {}", describe(&output));

        let output = run(&program, &[which], mode, &[("WEIR_ABORT_ON_MISUSE", "0".into())]);
        check_message(which, &output, words);
        assert!(output.status.success(), "{which} in mode {mode:?}, ignored: {}", describe(&output));
    }
}

fn check_message(which: &str, output: &std::process::Output, words: &[&str]) {
    let (address, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for word in words.iter().chain(&["weir: ", address.trim()]) {
        assert!(!word.is_empty() && message.contains(word), "{which}: no {word:?} in: {}", describe(output));
    }
}

macro_rules! named {
    ($($test:ident: $which:literal, $words:expr;)*) => {$(
        #[test]
        fn $test() {
            is_named($which, &$words);
        }
    )*};
}

named! {
    freed_by_free: "freed", ["free() of an object of a cache", "weir_cache_free()"];
    freed_by_free_under_a_limit: "freed-limited", ["free() of an object of a cache"];
    freed_by_free_and_found_by_a_batch: "freed-in-a-batch", ["free() of an object of a cache"];
    freed_by_free_and_finalized: "freed-and-finalized", ["free() of an object of a cache"];
    freed_by_realloc: "deleted-by-realloc", ["free() of an object of a cache"];
    resized: "resized", ["realloc() of an object of a cache"];
    resized_without_a_dtor: "resized-plain", ["realloc() of an object of a cache"];
    freed_twice: "twice", ["double free"];
    freed_twice_in_a_batch: "twice-in-a-batch", ["double free"];
    freed_twice_with_others_between: "twice-with-others-between", ["double free"];
    written_past_its_end: "overrun", ["past its end"];
    inside_an_object: "inside", ["no object in use begins here"];
    inside_an_object_and_unaligned: "odd", ["no object in use begins here"];
    of_another_cache: "other-cache", ["not an object of this cache"];
    of_another_cache_without_a_dtor: "other-cache-plain", ["never allocated"];
    of_malloc: "mallocs", ["not an object of this cache"];
    on_the_stack: "stack", ["not an object of this cache"];
    null_cache: "no-cache", ["the cache is NULL"];
    null_cache_of_a_batch: "no-cache-batch", ["the cache is NULL"];
    null_array: "no-array", ["the array of objects is NULL"];
    null_object_in_a_batch: "null-in-a-batch", ["NULL in the array"];
    cache_destroyed_twice: "destroyed-twice", ["not a cache"];
    zone_destroyed_twice: "zone-destroyed-twice", ["not a zone"];
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
        let mut command = std::process::Command::new(compiler);
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
    let library = common::library().expect("Weir's own");
    let Ok(output) = std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(library).output() else {
        weir_testing::skip!("no nm; Debian has it in binutils");
        return;
    };
    let names = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("weir_")).map(str::to_owned).collect()
    };
    let exported = names(&String::from_utf8_lossy(&output.stdout));
    // A declaration begins a line, with a type before the name.
    let declarations = include_str!("../include/weir.h").lines().filter_map(|line| line.split_once('('));
    let is_code = |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.starts_with("typedef");
    let declared =
        declarations.filter(|(line, _)| is_code(line)).filter_map(|(line, _)| line.rsplit([' ', '*']).next());
    assert_eq!(names(&declared.collect::<Vec<_>>().join(" ")), exported);
    assert!(exported.len() >= 25, "{exported:?}");
}
