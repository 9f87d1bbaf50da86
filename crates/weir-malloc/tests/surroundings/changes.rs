//! A program that becomes another user, or gets another root or other namespaces: `libweir.so` stands before libc's functions.

use crate::common::{Kind, Mode, compile, passes, run, succeeded};

#[test]
fn libcs_own_functions_are_called() {
    passes(Kind::C, "changes.c", &[], Mode::Plain);
}

/// As on glibc before 2.34, in a program that does not load libdl.
#[test]
fn they_are_where_the_process_has_no_dlsym() {
    let (Some(without), Some(program)) = (compile(Kind::CLibrary, "no_dlsym.c"), compile(Kind::C, "changes.c")) else {
        return;
    };
    succeeded("changes.c", &run(&program, &[], Mode::Plain, &[("PRELOAD_BEFORE", without.into())]));
}
