//! The contracts of C, POSIX, glibc and C++, as small programs see them.

use crate::common::{Kind, Mode, compile, describe, foreign, passes, run};
use crate::{in_all_modes, passing};
use std::process::Command;

passing! {
    malloc_family: "contract.c";
    contents: "blocks.c";
    glibc_extensions: "glibc_ext.c";
    own_malloc: "own_malloc.c";
    before_and_after_main: "early_late.c";
}

fn cxx_operators(mode: Mode) {
    passes(Kind::Cxx, "operators.cpp", &[], mode);
}

/// A program's own operators: the forms it did not define call those it did, as the standard says.
fn replaced_operators(mode: Mode) {
    for program in ["replaced.cpp", "replaced_plain.cpp", "replaced_arrays.cpp"] {
        passes(Kind::Cxx, program, &[], mode);
    }
}

/// A program's own `malloc` is what its `new` calls. One that only wraps the next one is no allocator.
fn operators_of_an_own_malloc(mode: Mode) {
    for program in ["own_malloc.cpp", "wrapped_malloc.cpp"] {
        passes(Kind::Cxx, program, &[], mode);
    }
}

in_all_modes! { cxx_operators replaced_operators operators_of_an_own_malloc }

/// The malloc family returns what the C library's own does, and so is `errno` after it.
#[test]
fn the_c_librarys_answers() {
    let Some(program) = compile(Kind::C, "answers.c") else { return };
    let theirs = Command::new(&program).output().expect("just compiled");
    let ours = run(&program, &[], Mode::Plain, &[]);
    assert!(ours.status.success() && theirs.status.success(), "{}", describe(&ours));
    let (ours, theirs) = (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "Weir's, and the C library's");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
    assert!(ours.lines().count() > 400, "{ours}");
}

/// A C++ library in a scope of its own, in a C program: there is no `std::bad_alloc` where the loader looked.
#[test]
fn cxx_in_a_local_scope() {
    let Some(library) = compile(Kind::CxxLibrary, "local_cxx.cpp") else { return };
    passes(Kind::C, "local_scope.c", &[library.to_str().expect("paths here are text")], Mode::Plain);
}

/// Without any C++ runtime there is nothing to throw: the process ends, and says why.
#[test]
fn new_without_a_cxx_runtime() {
    let Some(program) = compile(Kind::C, "local_scope.c") else { return };
    if foreign() {
        weir_testing::skip!("the C library has no operator new");
        return;
    }
    let output = run(&program, &["none"], Mode::Plain, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("weir: operator new: no memory"), "{}", describe(&output));
    assert!(!output.status.success());
}
