//! Libraries that a program opens with `RTLD_DEEPBIND`.

use crate::common::{Kind, Mode, compile, describe, foreign, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Blocks pass between the program and the library.
#[test]
fn a_library_opened_so_shares_the_heap() {
    let (Some(program), Some(plugin)) = (compile(Kind::C, "deep.c"), compile(Kind::CLibrary, "deep_plugin.c")) else {
        return;
    };
    let plugin = plugin.to_str().expect("paths here are text");
    let output = run(&program, &[plugin], Mode::Plain, &[]);
    assert!(output.status.success(), "{}", describe(&output));
    if foreign() {
        return;
    }
    let output = run(&program, &[plugin], Mode::Plain, &[("WEIR_DEEPBIND", "1".into())]);
    assert!(!output.status.success(), "the setting leaves the bit: {}", describe(&output));
}

/// libc looks for the library where the *caller's* RUNPATH says.
#[test]
fn the_callers_runpath_counts() {
    let Some(plugin) = compile(Kind::CLibrary, "deep_plugin.c") else { return };
    let (folder, name) = (plugin.parent().expect("a file's folder"), plugin.file_name().expect("a file's name"));
    let program = compile_with_runpath(folder);
    let output = run(&program, &[name.to_str().expect("names here are text")], Mode::Plain, &[]);
    assert!(output.status.success(), "{}", describe(&output));
}

fn compile_with_runpath(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surroundings/c/deep.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("deep_runpath.{}", std::process::id()));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-w", "-Wl,--enable-new-dtags", "-ldl", "-I"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common")).arg(source).arg("-o").arg(&program);
    let output = command.arg(format!("-Wl,-rpath,{}", folder.display())).output().expect("it compiled the plugin");
    assert!(output.status.success(), "{}", describe(&output));
    program
}
