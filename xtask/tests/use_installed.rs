//! An installed Weir is found: by `weir`, by the loader, by compilers.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Place, describe, has, run};

/// Prints the version of the library that it runs on, and the library's file.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>
int main(void) {
    void *block = malloc(100000);
    if (!block || strcmp(weir_version(), WEIR_VERSION)) return 1;
    free(block);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "libweir")) return fputs(strchr(line, '/'), stdout) < 0;
    return 2;
}
"#;

fn library(place: &Place, libdir: &str) -> String {
    place.file(libdir).join("libweir.so.0").display().to_string()
}

#[test]
fn the_installed_command_finds_the_installed_library() {
    for libdir in ["lib", "lib/x86_64-linux-gnu", "lib64"] {
        let place = Place::with_destdir("/usr");
        place.install(&["--libdir", libdir]);
        let weir = || {
            let mut weir = Command::new(place.file("bin/weir"));
            weir.env_remove("WEIR_LIB").env_remove("LD_PRELOAD");
            weir
        };
        run(weir().args(["run", "--quiet", "--", "/bin/true"]));
        let maps = run(weir().args(["run", "--quiet", "--", "cat", "/proc/self/maps"]));
        assert!(maps.contains(&library(&place, libdir)), "{maps}");
        let doctor = run(weir().arg("doctor"));
        assert!(doctor.contains(&library(&place, libdir)), "{doctor}");
    }
}

#[test]
fn without_the_library_it_says_what_to_do() {
    let place = Place::with_prefix();
    place.install(&[]);
    std::fs::remove_file(place.file("lib/libweir.so.0")).expect("the library");
    let mut weir = Command::new(place.file("bin/weir"));
    let output = weir.args(["run", "true"]).env_remove("WEIR_LIB").output().expect("weir starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(text.starts_with("weir: library missing") && text.contains("cargo xtask install"), "{text}");
}

#[test]
fn it_is_preloaded_by_hand() {
    let place = Place::with_prefix();
    place.install(&[]);
    for name in ["libweir.so.0", "libweir.so"] {
        let library = place.file("lib").join(name);
        let maps = run(Command::new("cat").arg("/proc/self/maps").env("LD_PRELOAD", &library));
        assert!(maps.contains("/libweir.so.0\n"), "{maps}");
    }
}

#[test]
fn a_c_program_is_built_by_pkg_config_and_runs() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    // In its place, and in a tree that stands for /.
    for place in [Place::with_prefix(), Place::with_destdir("/opt/w")] {
        place.install(&[]);
        let mut pkg_config = Command::new("pkg-config");
        pkg_config.env("PKG_CONFIG_PATH", place.file("lib/pkgconfig"));
        if let Some(destdir) = &place.destdir {
            pkg_config.env("PKG_CONFIG_SYSROOT_DIR", destdir);
        }
        let version = run(Command::new("pkg-config")
            .args(["--modversion", "weir"])
            .env("PKG_CONFIG_PATH", place.file("lib/pkgconfig")));
        assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
        let flags = run(pkg_config.args(["--cflags", "--libs", "weir"]));
        let program = compile(PROGRAM, place.root.path(), flags.split_whitespace());
        let used = run(Command::new(program).env("LD_LIBRARY_PATH", place.file("lib")));
        assert_eq!(used.trim(), library(&place, "lib"));
        // A program whose libraries alone call `malloc`, by a linker that leaves out what is not called.
        let folder = place.root.path();
        std::fs::write(folder.join("thin.c"), THIN).expect("the source");
        let include = flags.split_whitespace().find(|flag| flag.starts_with("-I")).expect("the header's folder");
        std::fs::write(folder.join("work.c"), PROGRAM.replace("main", "work")).expect("the source");
        let cc = |words: &[&str]| run(Command::new("cc").args(words).current_dir(folder));
        cc(&["-shared", "-fPIC", "-fno-builtin", include, "work.c", "-o", "libwork.so"]);
        let thin = ["-Wl,--as-needed", "-Wl,--allow-shlib-undefined", "thin.c", "-o", "thin", "-L.", "-lwork"];
        let here = format!("-Wl,-rpath,{}", folder.display());
        let words: Vec<&str> = thin.into_iter().chain([here.as_str()]).chain(flags.split_whitespace()).collect();
        cc(&words);
        let used = run(Command::new(folder.join("thin")).env("LD_LIBRARY_PATH", place.file("lib")));
        assert_eq!(used.trim(), library(&place, "lib"));
    }
}

const THIN: &str = "int work(void); int main(void) { return work(); }\n";

/// Calls nothing of malloc's itself, as programs do that leave it to libc's functions. Fails if the block that `getline`
/// takes is glibc's: that has its first ones behind the program's data.
const STATIC: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
extern char end;
int main(void) {
    char *line = 0;
    size_t size = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    if (!file || getline(&line, &size, file) < 0) return 1;
    return line >= &end && line < (char *)sbrk(0) ? 2 : 0;
}
"#;

#[test]
fn a_static_c_program_is_built_by_pkg_config_and_runs() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let place = Place::with_prefix();
    place.install(&[]);
    run(&mut Command::new(compile_static(STATIC, &place)));
}

/// Opens a library. Static programs of glibc can do that.
const OPENS: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    free(malloc(10));
    if (dlopen("libm.so.6", RTLD_NOW)) return 0;
    return puts(dlerror()), 1;
}
"#;

/// In a static program nothing is behind a function that Weir defines: libc's own of that name is left out.
#[test]
fn a_static_c_program_has_all_that_libc_has() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let place = Place::with_prefix();
    place.install(&[]);
    run(&mut Command::new(compile_static(OPENS, &place)));
    // It gets another root, other namespaces, another user.
    let changes = include_str!("../../crates/weir-malloc/tests/surroundings/c/changes.c");
    let output = Command::new(compile_static(changes, &place)).output().expect("it starts");
    weir_testing::program_skipped("changes.c", &output);
    assert!(output.status.success(), "{}", describe(&output));
}

/// Holds memory until its input ends.
const HOLDS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    for (int i = 0; i < 1000; i++)
        if (!calloc(1, 20000)) return 1;
    return getchar() != EOF;
}
"#;

/// Weir's code is a part of the program's there: all frames of a call stack look like Weir's own.
#[test]
fn a_static_c_program_is_not_profiled_and_why_is_said() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let place = Place::with_prefix();
    place.install(&[]);
    let mut program = Command::new(compile_static(HOLDS, &place));
    let mut child = program.env("WEIR_PROFILE_BYTES", "65536").stdin(Stdio::piped()).spawn().expect("it starts");
    let weir = |command: &str| {
        let mut weir = Command::new(place.file("bin/weir"));
        weir.args([command, &child.id().to_string()]).output().expect("weir starts")
    };
    weir_testing::wait_until("its figures", || weir("stat").status.success());
    let output = weir("profile");
    let said = describe(&output);
    assert!(output.status.code() == Some(5) && said.contains("libweir.a") && said.contains("libweir.so"), "{said}");
    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
}

/// A static program, by the flags that pkg-config says.
fn compile_static(text: &str, place: &Place) -> PathBuf {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", place.file("lib/pkgconfig"));
    let flags = run(pkg_config.args(["--static", "--cflags", "--libs", "weir"]));
    compile(text, place.root.path(), ["-static", "-pthread"].into_iter().chain(flags.split_whitespace()))
}

/// A project that uses CMake's `weir::weir`, `weir::static` and `weir::preload`; versions that this one is not are
/// refused.
const CMAKE: &str = r#"
cmake_minimum_required(VERSION 3.13)
project(program C)
enable_testing()
foreach(version 1.0 0.99 0.2...<0.9)
  find_package(weir ${version} QUIET)
  if(weir_FOUND)
    message(FATAL_ERROR "weir ${weir_VERSION} was taken for ${version}")
  endif()
endforeach()
find_package(weir 0.1 REQUIRED)
find_package(weir 0.1...<1 REQUIRED)
add_executable(program program.c)
target_compile_options(program PRIVATE -fno-builtin)
target_link_libraries(program PRIVATE weir::weir)
# Its library alone calls malloc.
add_library(work SHARED work.c)
target_include_directories(work PRIVATE $<TARGET_PROPERTY:weir::weir,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_options(work PRIVATE -fno-builtin)
target_link_options(work PRIVATE -Wl,--as-needed)
add_executable(thin thin.c)
target_link_options(thin PRIVATE -Wl,--as-needed -Wl,--allow-shlib-undefined)
target_link_libraries(thin PRIVATE work weir::weir)
add_executable(static static.c)
target_link_options(static PRIVATE -static)
target_link_libraries(static PRIVATE weir::static)
add_test(NAME static COMMAND static)
add_test(NAME preload COMMAND grep /libweir.so.0 /proc/self/maps)
set_tests_properties(preload PROPERTIES ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:weir::preload>")
"#;

#[test]
fn a_c_program_is_built_by_cmake_and_runs() {
    if !has("cmake") || !has("cc") {
        return;
    }
    // Below a prefix, and as Debian has it: CMake finds that by the link /lib, from which /usr/include is not seen.
    let (local, debian) = (Place::with_prefix(), Place::with_destdir("/usr"));
    let stage = debian.destdir.clone().expect("its tree");
    std::fs::create_dir_all(&stage).expect("a directory");
    std::os::unix::fs::symlink("usr/lib", stage.join("lib")).expect("a link");
    for (place, libdir, search) in
        [(&local, "lib", local.prefix.as_path()), (&debian, "lib/x86_64-linux-gnu", stage.as_path())]
    {
        place.install(&["--libdir", libdir]);
        let folder = place.root.path();
        std::fs::write(folder.join("program.c"), PROGRAM).expect("the source");
        std::fs::write(folder.join("static.c"), STATIC).expect("the source");
        std::fs::write(folder.join("thin.c"), THIN).expect("the source");
        std::fs::write(folder.join("work.c"), PROGRAM.replace("main", "work")).expect("the source");
        std::fs::write(folder.join("CMakeLists.txt"), CMAKE).expect("what to build");
        let build = folder.join("build");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(folder).arg("-B").arg(&build).arg("-DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu");
        run(configure.env("CMAKE_PREFIX_PATH", search));
        run(Command::new("cmake").arg("--build").arg(&build));
        // CMake has written the library's directory into the program.
        // Cargo has its own target directory there, which may hold another build of the library.
        for program in ["program", "thin"] {
            let used = run(Command::new(build.join(program)).env_remove("LD_LIBRARY_PATH"));
            assert_eq!(used.trim(), library(place, libdir), "{program}");
        }
        let mut ctest = Command::new("ctest");
        run(ctest.arg("--output-on-failure").current_dir(&build).env_remove("LD_LIBRARY_PATH"));
    }
}

/// The program that holds weir.hpp to its word, and the example of its page, both by a user's means.
#[test]
fn cxx_programs_use_the_header() {
    let page = include_str!("../../docs/LANGUAGES.md");
    let (example, said) =
        page.split_once("```cpp\n").and_then(|(_, rest)| rest.split_once("```\n")).expect("an example");
    let said = said.split_once("./a.out\n    ").and_then(|(_, rest)| rest.lines().next()).expect("what it prints");
    let place = Place::with_prefix();
    place.install(&[]);
    let folder = place.root.path();
    std::fs::write(folder.join("example.cpp"), example).expect("the source");
    // The header is in two units of one program.
    let second = "#include <weir.hpp>\nint second_unit();\nint second_unit() { return weir_version() == nullptr; }\n";
    std::fs::write(folder.join("second.cpp"), second).expect("the source");
    let library = format!("-Wl,-rpath,{}", place.file("lib").display());
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "weir"])
        .env("PKG_CONFIG_PATH", place.file("lib/pkgconfig")));
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/cxx.cpp");
    let plain = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/cxx_plain.cpp");
    for compiler in compilers() {
        for standard in ["-std=c++17", "-std=c++20"] {
            let build = |name: &str, sources: &[&str]| {
                let mut build = Command::new(compiler);
                build.args([standard, "-O1", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", name]);
                run(build.args(sources).args(flags.split_whitespace()).arg(&library).current_dir(folder));
                run(&mut Command::new(folder.join(name)))
            };
            assert_eq!(build("cxx", &[program, "second.cpp"]).trim(), "all passed", "{compiler} {standard}");
            assert_eq!(build("example", &["example.cpp"]).trim(), said, "{compiler} {standard}");
            let plainly = build("plain", &["-fno-exceptions", "-fno-rtti", plain]);
            assert_eq!(plainly.trim(), "all passed", "{compiler} {standard}");
            let ends = Command::new(folder.join("plain")).arg("wrong").output().expect("it starts");
            let said = String::from_utf8_lossy(&ends.stderr);
            assert!(!ends.status.success() && said.contains("weir: weir_cache_create: Invalid argument"), "{said}");
        }
    }
}

/// Compilers of C++. The second is tested where it is.
fn compilers() -> Vec<&'static str> {
    if !has("g++") || !has("pkg-config") {
        return Vec::new();
    }
    let clang = Command::new("clang++").arg("--version").output().is_ok();
    if clang { vec!["g++", "clang++"] } else { vec!["g++"] }
}

/// A program that was linked in the build tree runs there: the loader finds the soname beside the library.
#[test]
fn a_program_linked_in_the_build_tree_runs() {
    if !has("cc") {
        return;
    }
    let place = Place::with_prefix();
    place.install(&[]);
    let tree = Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("target/PROFILE").display().to_string();
    let header = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../crates/weir-malloc/include");
    let flags = [header, &format!("-L{tree}"), "-lweir", &format!("-Wl,-rpath,{tree}")];
    let program = compile(PROGRAM, place.root.path(), flags.into_iter());
    let used = run(Command::new(program).env_remove("LD_LIBRARY_PATH"));
    assert_eq!(used.trim(), format!("{tree}/libweir.so"));
}

fn compile<'a>(text: &str, folder: &Path, flags: impl Iterator<Item = &'a str>) -> PathBuf {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, text).expect("the source");
    run(Command::new("cc").arg("-O1").arg("-fno-builtin").arg(&source).arg("-o").arg(&program).args(flags));
    program
}

#[test]
fn pages_and_completions_that_cannot_be_written_are_an_error() {
    let place = Place::with_prefix();
    place.install(&[]);
    for program in ["weir", "weir-nbd"] {
        let mut generate = Command::new(place.file("bin").join(program));
        let output = generate.args(["generate", "/dev/null/pages"]).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{program}");
        assert!(text.starts_with(&format!("{program}: cannot write /dev/null/pages: ")), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn shells_read_the_completions() {
    let place = Place::with_prefix();
    place.install(&[]);
    for program in ["weir", "weir-nbd"] {
        let bash = place.file("share/bash-completion/completions").join(program);
        // What bash-completion does when TAB is typed after `weir s`.
        let script = r#". "$1"; COMP_WORDS=("$2" s) COMP_CWORD=1; _"${2//-/__}" "$2" s "$2"; echo "${COMPREPLY[@]}""#;
        let found = run(Command::new("bash").args(["-c", script, "bash"]).arg(&bash).arg(program));
        let wanted = if program == "weir" { "settings" } else { "serve stat" };
        assert!(found.trim().contains(wanted), "{program}: {found}");
        let text = std::fs::read_to_string(place.file("share/zsh/site-functions").join(format!("_{program}")));
        assert!(text.expect("zsh's").starts_with(&format!("#compdef {program}")), "{program}");
        let fish = place.file("share/fish/vendor_completions.d").join(format!("{program}.fish"));
        assert!(
            std::fs::read_to_string(fish).expect("fish's").contains(&format!("complete -c {program}")),
            "{program}"
        );
    }
}
