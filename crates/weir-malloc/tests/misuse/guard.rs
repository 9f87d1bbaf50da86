//! Guarded sampling. Each kind of error is named, with the stacks of the allocation and of the free. Then happens what would
//! have happened without Weir. What a program does rightly is as without guarding.

use crate::common::{Kind, Mode, compile, describe, ended_by, foreign, run};
use crate::in_all_modes;
use std::process::Output;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// Runs an error with one allocation in `every` guarded; `None`: it cannot be run here, which was said.
fn guarded(what: &str, every: &str, mode: Mode, more: &[(&str, &str)]) -> Option<Output> {
    if foreign() {
        weir_testing::skip!("{what}: guarding is Weir's");
        return None;
    }
    let program = compile(Kind::C, "guard.c")?;
    let mut extra = vec![("WEIR_GUARD_EVERY", every.into())];
    extra.extend(more.iter().map(|&(name, value)| (name, value.into())));
    Some(run(&program, &[what], mode, &extra))
}

/// The run ends by `signal`, and its last words are these: what was done, the block, and the program's frames below the two
/// headings.
fn is_named(what: &str, signal: i32, words: &[&str], is_freed: bool) {
    for mode in [Mode::Plain, Mode::NoRseq] {
        let Some(output) = guarded(what, "1", mode, &[]) else { return };
        assert!(ended_by(&output, signal), "{what}: {}", describe(&output));
        let (out, text) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let block = format!("the block: {}, 100 bytes", out.trim());
        for word in words.iter().copied().chain([block.as_str(), "allocated by thread"]) {
            assert!(text.contains(word), "{what}: no {word:?} in: {}", describe(&output));
        }
        let (allocated, freed) = text.split_once("freed by thread").unwrap_or((&text, ""));
        assert_eq!(freed.is_empty(), !is_freed, "{what}: {}", describe(&output));
        for stack in [Some(allocated), is_freed.then_some(freed)].into_iter().flatten() {
            let inner = stack.lines().find(|line| line.starts_with("weir:     0x"));
            let is_programs = inner.is_some_and(|line| line.contains("the program+0x"));
            assert!(is_programs, "{what}: the innermost frame is the program's: {}", describe(&output));
        }
    }
}

macro_rules! named {
    ($($test:ident: $what:literal, $signal:expr, $words:expr, $is_freed:expr;)*) => {$(
        #[test]
        fn $test() {
            is_named($what, $signal, &$words, $is_freed);
        }
    )*};
}

named! {
    a_write_past_the_end: "overflow", SIGSEGV, ["weir: buffer overflow: a write at", "past its last byte"], false;
    a_read_past_the_end: "overflow-read", SIGSEGV, ["weir: buffer overflow: a read at", "past its last byte"], false;
    a_write_before_the_beginning: "underflow", SIGSEGV, ["weir: buffer underflow: a write at", "before the block"], false;
    a_byte_too_many: "off-by-one", SIGABRT, ["weir: buffer overflow", "1 bytes past its last byte", "is freed"], true;
    a_read_after_the_free: "read-after-free", SIGSEGV, ["weir: use after free: a read at", "inside the block"], true;
    a_write_after_the_free: "write-after-free", SIGSEGV, ["weir: use after free: a write at", "inside the block"], true;
    a_second_free: "double-free", SIGABRT, ["weir: double free: 0x"], true;
    a_free_of_its_middle: "interior", SIGABRT, ["weir: free of a pointer into the middle of a block: 0x"], false;
    a_realloc_after_the_free: "realloc-after-free", SIGABRT, ["weir: double free: 0x"], true;
}

/// The program goes on where it would have.
fn ends_well(what: &str, every: &str, mode: Mode, more: &[(&str, &str)]) -> Option<String> {
    let output = guarded(what, every, mode, more)?;
    assert!(output.status.success(), "{what} in mode {mode:?}: {}", describe(&output));
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_frees_are_ignored_where_the_setting_says_so() {
    for what in ["double-free", "interior", "realloc-after-free", "off-by-one"] {
        let Some(text) = ends_well(what, "1", Mode::Plain, &[("WEIR_ABORT_ON_MISUSE", "0")]) else { return };
        assert!(text.contains("allocated by thread"), "{what}: {text}");
    }
}

#[test]
fn handlers_that_were_there_are_called() {
    // Guarding is switched on by the program, after its handler was set.
    let Some(text) = ends_well("handler-first", "0", Mode::Plain, &[]) else { return };
    assert_eq!(text.matches("weir: buffer overflow").count(), 1, "{text}");
    assert_eq!(text.matches("allocated by").count(), 1, "{text}");
}

#[test]
fn a_small_stack_for_signals_is_enough() {
    let Some(text) = ends_well("small-stack", "0", Mode::Plain, &[]) else { return };
    assert_eq!(text.matches("weir: buffer overflow").count(), 1, "{text}");
    assert_eq!(text.matches("allocated by").count(), 1, "{text}");
}

#[test]
fn handlers_that_come_later_are_left_alone() {
    let Some(text) = ends_well("handler-later", "1", Mode::Plain, &[]) else { return };
    assert!(!text.contains("weir:"), "{text}");
}

#[test]
fn a_signal_that_was_sent_ends_the_program() {
    let Some(output) = guarded("sent", "1", Mode::Plain, &[]) else { return };
    assert!(ended_by(&output, SIGSEGV) && output.stderr.is_empty(), "{}", describe(&output));
}

fn what_is_right_is_not_named(mode: Mode) {
    for every in ["1", "7"] {
        let Some(text) = ends_well("used-rightly", every, mode, &[]) else { return };
        assert_eq!(text, "");
    }
    // With samples of the heap profile among them.
    ends_well("used-rightly", "3", mode, &[("WEIR_PROFILE_BYTES", "4K")]);
}

in_all_modes! { what_is_right_is_not_named }

#[test]
fn nothing_happens_while_it_is_off() {
    let Some(text) = ends_well("off", "0", Mode::Plain, &[]) else { return };
    assert_eq!(text, "");
}
