//! A wrong free is detected and named, never obeyed.

mod common;
use common::{Kind, Mode, compile, describe, foreign, run};
use std::os::unix::process::ExitStatusExt;

const SIGABRT: i32 = 6;

/// The process must abort, and its last words must name the pointer and what is wrong with it.
fn is_named(which: &str, words: &[&str]) {
    let Some(program) = compile(Kind::C, "wrong_free.c") else { return };
    if foreign() {
        println!("SKIPPED: {which}: the messages are Weir's");
        return;
    }
    for mode in [Mode::Plain, Mode::NoRseq] {
        let output = run(&program, &[which], mode, &[]);
        let (pointer, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // `timeout` reports its child's signal as its own.
        let aborted = output.status.signal() == Some(SIGABRT) || output.status.code() == Some(128 + SIGABRT);
        assert!(aborted, "{which} in mode {mode:?}: {}", describe(&output));
        for word in words.iter().chain(&["weir", pointer.trim().trim_start_matches("0x")]) {
            assert!(message.contains(word), "{which} in mode {mode:?}: no {word:?} in: {}", describe(&output));
        }
        assert!(!message.contains("survived"), "{which} in mode {mode:?}: {}", describe(&output));
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
    freed_twice: "twice", ["double free", "free each block once"];
    freed_twice_with_others_between: "twice-later", ["double free"];
    freed_twice_in_turn_with_others: "twice-in-turn", ["double free"];
    inside_a_block_in_turn_with_others: "inside-in-turn", ["middle of a block"];
    freed_twice_after_a_trim: "twice-after-trim", ["free"];
    freed_twice_and_never_looked_at: "twice-unseen", ["double free"];
    freed_twice_large: "twice-large", ["free"];
    freed_twice_huge: "twice-huge", ["free"];
    freed_twice_by_realloc: "twice-realloc", ["double free"];
    inside_a_block: "inside", ["free"];
    not_aligned: "unaligned", ["free"];
    inside_a_large_block: "inside-large", ["free"];
    inside_a_huge_block: "inside-huge", ["free"];
    on_the_stack: "stack", ["free"];
    static_variable: "static", ["free"];
    somebody_elses_mapping: "mapped", ["free"];
    wild_pointer: "wild", ["free"];
    wild_realloc: "realloc-wild", [];
}
