//! Libraries that a program opens and closes, and others that are preloaded before or after Weir.

use crate::common::{Kind, Mode, compile, foreign, passes, run, succeeded};
use crate::in_all_modes;

fn libraries_come_and_go(mode: Mode) {
    let Some(plugin) = compile(Kind::CLibrary, "plugin.c") else { return };
    passes(Kind::C, "plugins.c", &[plugin.to_str().expect("paths here are text")], mode);
}

in_all_modes! { libraries_come_and_go }

/// Preloaded after Weir, a wrapper of malloc sees nothing; both work.
#[test]
fn before_another_preload() {
    let (Some(beside), Some(program)) = (compile(Kind::CLibrary, "beside.c"), compile(Kind::C, "beside_main.c")) else {
        return;
    };
    if foreign() {
        weir_testing::skip!("no library to be beside of");
        return;
    }
    let output = run(&program, &["first"], Mode::Plain, &[("ALSO_PRELOAD", beside.into())]);
    succeeded("beside_main.c", &output);
}

/// Preloaded before Weir, a wrapper finds Weir's malloc as the next one.
#[test]
fn after_another_preload() {
    let (Some(beside), Some(program)) = (compile(Kind::CLibrary, "beside.c"), compile(Kind::C, "beside_main.c")) else {
        return;
    };
    if foreign() {
        weir_testing::skip!("no library to be beside of");
        return;
    }
    let output = run(&program, &["wrapped"], Mode::Plain, &[("PRELOAD_BEFORE", beside.into())]);
    succeeded("beside_main.c", &output);
}
