//! A wrong free is detected and named, never obeyed.

use crate::common::{Kind, Mode, compile, describe, ended_by, foreign, run};

const SIGABRT: i32 = 6;

const DOUBLE: &str = "double free: {}";
const INTERIOR: &str = "free of a pointer into the middle of a block: {}";
const FOREIGN: &str = "free of a pointer that was never allocated: {}";
const SIZE: &str = "malloc_usable_size of a pointer that no block begins at: {}";
/// The text that follows the pointer. Of a small block it is the size class of its 100 bytes. Of pages it is the class of
/// one, or nothing, by where chance has put them. Where there are no pages of the heap's it is nothing.
const SMALL: &[&str] = &[" (size class 112)"];
const PAGES: &[&str] = &["", " (size class 4096)"];
/// As [`PAGES`], or the class of the 300,000 bytes that wait on their CPU, as they do where huge pages are always on.
const RUN: &[&str] = &["", " (size class 4096)", " (size class 327680)"];
const NONE: &[&str] = &[""];
const ADVICE: &str = "AddressSanitizer or a debugger shows where";

/// The process must abort, and its last words are one line. It says what is wrong, with the pointer in the place of `{}`, and
/// what to do. One of `classes` stands behind the pointer.
fn is_named(which: &str, wrong: &str, classes: &[&str]) {
    is_named_with(which, &[wrong], classes, &[]);
}

/// Checks as [`is_named`] does, with further variables of the environment.
fn is_named_with(which: &str, wrongs: &[&str], classes: &[&str], environment: &[(&str, std::ffi::OsString)]) {
    let Some(program) = compile(Kind::C, "wrong_free.c") else { return };
    if foreign() {
        weir_testing::skip!("{which}: the messages are Weir's");
        return;
    }
    for mode in [Mode::Plain, Mode::NoRseq] {
        let output = run(&program, &[which], mode, environment);
        let (pointer, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(ended_by(&output, SIGABRT), "{which} in mode {mode:?}: {}", describe(&output));
        let words = |wrong: &str, class: &str| {
            let wrong_pointer = wrong.replace("{}", pointer.trim());
            format!("weir: {wrong_pointer}{class}: {}; {ADVICE}\n", cure(wrong))
        };
        let wanted: Vec<String> =
            wrongs.iter().flat_map(|wrong| classes.iter().map(|class| words(wrong, class))).collect();
        assert!(wanted.iter().any(|words| *words == message), "{which} in mode {mode:?}: not {wanted:?}: {message}");
    }
}

fn cure(wrong: &str) -> &'static str {
    match wrong {
        DOUBLE => "free each block once",
        INTERIOR => "free the pointer that malloc or realloc returned",
        SIZE => "ask of what malloc or realloc returned, before it is freed",
        _ => "free only what this process's malloc returned",
    }
}

macro_rules! named {
    ($($test:ident: $which:literal, $wrong:expr, $class:expr;)*) => {$(
        #[test]
        fn $test() {
            is_named($which, $wrong, $class);
        }
    )*};
}

named! {
    freed_twice: "twice", DOUBLE, SMALL;
    freed_twice_with_others_between: "twice-later", DOUBLE, SMALL;
    freed_twice_in_turn_with_others: "twice-in-turn", DOUBLE, SMALL;
    inside_a_block_in_turn_with_others: "inside-in-turn", INTERIOR, SMALL;
    inside_a_block_after_many_batches: "inside-late", INTERIOR, SMALL;
    freed_twice_and_never_looked_at: "twice-unseen", DOUBLE, SMALL;
    freed_twice_and_the_handler_returns: "twice-handled", DOUBLE, SMALL;
    freed_twice_and_the_signal_is_ignored: "twice-ignored", DOUBLE, SMALL;
    freed_twice_never_looked_at_and_the_handler_returns: "twice-unseen-handled", DOUBLE, SMALL;
    freed_twice_large: "twice-large", DOUBLE, RUN;
    freed_twice_by_realloc: "twice-realloc", DOUBLE, SMALL;
    inside_a_block: "inside", INTERIOR, SMALL;
    not_aligned: "unaligned", INTERIOR, SMALL;
    inside_a_large_block: "inside-large", INTERIOR, PAGES;
    inside_a_huge_block: "inside-huge", FOREIGN, NONE;
    on_the_stack: "stack", FOREIGN, NONE;
    static_variable: "static", FOREIGN, NONE;
    somebody_elses_mapping: "mapped", FOREIGN, NONE;
    wild_pointer: "wild", FOREIGN, NONE;
    wild_realloc: "realloc-wild", FOREIGN, NONE;
    size_of_no_block: "size-inside-huge", SIZE, NONE;
}

/// It is kept for a while. What went back to the system is not known as a block any more.
#[test]
fn freed_twice_huge() {
    is_named_with("twice-huge", &[DOUBLE, FOREIGN], NONE, &[]);
}

/// It is no pointer that was never allocated.
#[test]
fn resized_after_it_was_freed_huge() {
    is_named_with("freed-huge-realloc", &[DOUBLE], NONE, &[]);
}

/// Its pages have gone back, or one of them is kept for what comes.
#[test]
fn freed_twice_after_a_trim() {
    is_named_with("twice-after-trim", &[INTERIOR, DOUBLE], &["", " (size class 112)", " (size class 4096)"], &[]);
}

/// A fault that may wait in a bucket otherwise is named at once where the setting `check` asks for it.
#[test]
fn all_that_is_wrong_is_named_at_once_if_asked_for() {
    let check = [("WEIR_CHECK", "1".into())];
    let of = [
        ("twice-between", DOUBLE, SMALL),
        ("inside-at-once", INTERIOR, SMALL),
        ("unaligned-at-once", INTERIOR, SMALL),
        ("twice", DOUBLE, SMALL),
        ("twice-large", DOUBLE, PAGES),
        ("inside-large", INTERIOR, PAGES),
    ];
    of.iter().for_each(|(which, wrong, classes)| is_named_with(which, &[wrong], classes, &check));
}
