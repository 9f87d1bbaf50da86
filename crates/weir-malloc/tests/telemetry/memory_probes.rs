//! The probes for tracers are in the library, under the names and with the arguments of OpenTelemetry's contract, and where
//! the notes say. No tracer is needed: the notes are read, and the code at their places. A debugger, where there is one, shows
//! that a breakpoint there is reached.

use crate::common::{Kind, compile, foreign, library};
use std::process::Command;

/// The notes that `readelf -n` finds in the library; `None`: there is no readelf, which is said.
fn notes() -> Option<String> {
    if foreign() {
        weir_testing::skip!("the probes are Weir's");
        return None;
    }
    let Ok(output) = Command::new("readelf").args(["-n", "-W"]).arg(library()?).output() else {
        weir_testing::skip!("the notes are read by readelf; Debian has it in binutils");
        return None;
    };
    Some(String::from_utf8(output.stdout).expect("readelf's text"))
}

/// One probe's arguments and the addresses of its instruction and of its semaphore.
fn probe(notes: &str, name: &str) -> (String, usize, usize) {
    let mut found = notes.split("stapsdt").filter(|note| {
        let has = |line: String| note.lines().any(|other| other.trim() == line);
        note.contains("Provider: otel_memory\n") && has(format!("Name: {name}"))
    });
    let note = found.next().unwrap_or_else(|| panic!("no probe {name} in: {notes}"));
    assert!(found.next().is_none(), "more than one {name} in: {notes}");
    let after = |key: &str| {
        let at = note.find(key).unwrap_or_else(|| panic!("no {key} in: {note}")) + key.len();
        note[at..].lines().next().unwrap_or_default().split(',').next().unwrap_or_default().trim().to_string()
    };
    let address = |key: &str| usize::from_str_radix(after(key).trim_start_matches("0x"), 16).expect("an address");
    (after("Arguments:"), address("Location:"), address("Semaphore:"))
}

#[test]
fn both_are_there_with_their_arguments() {
    let Some(notes) = notes() else { return };
    let (alloc, free) = (probe(&notes, "alloc"), probe(&notes, "free"));
    assert_eq!(alloc.0, "8@%rdi 8@%rsi 8@%rdx");
    assert_eq!(free.0, "8@%rdi");
    let places = [alloc.1, alloc.2, free.1, free.2];
    assert!(places.iter().all(|&place| place != 0) && alloc.1 != free.1 && alloc.2 != free.2, "{places:x?}");
}

/// With each allocation a sample, a breakpoint at each place is reached, once its semaphore is raised, with a block's address.
#[test]
fn they_are_reached_once_a_tracer_is_there() {
    let (Some(notes), Some(program)) = (notes(), compile(Kind::C, "sampled.c")) else { return };
    let (alloc, free) = (probe(&notes, "alloc"), probe(&notes, "free"));
    let library = library().expect("the notes were of it");
    // The library's base is known once it is loaded: the program stops there by itself.
    let script = format!(
        "set breakpoint pending on\nhandle SIGSTOP SIGCONT nostop noprint nopass\nset env LD_PRELOAD {}\nset env WEIR_PROFILE_BYTES 1\nset env WEIR_PROFILE_PERCENT 0\nset env EXPECT_WEIR 1\n\
         break ready\nrun\n\
         python\n\
         import gdb\n\
         base = [int(line.split()[0], 16) for line in gdb.execute('info proc mappings', to_string=True).splitlines() \
         if 'libweir' in line][0]\n\
         for at in ({}, {}): gdb.execute('set {{short}}%d = 1' % (base + at))\n\
         for at in ({}, {}): gdb.execute('break *%d' % (base + at))\n\
         end\n\
         continue\nprint/x $rdi\nprint $rsi\nprint $rdx\ncontinue\nprint/x $rdi\nkill\n",
        library.display(),
        alloc.2,
        free.2,
        alloc.1,
        free.1
    );
    let output = Command::new("timeout")
        .args([
            crate::common::PATIENCE_S,
            "gdb",
            "-nx",
            "-batch",
            "-ex",
            "set pagination off",
            "-ex",
            "set debuginfod enabled off",
            "-x",
        ])
        .arg(written("probes.gdb", &script))
        .arg(&program)
        .output()
        .expect("timeout runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !text.contains("Breakpoint 1") {
        weir_testing::skip!("this needs gdb, and that it may trace: {words}");
        return;
    }
    let values: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('$')?.split(" = ").nth(1)).collect();
    let [block, size, weight, freed] = values[..] else { panic!("{text}\n{words}") };
    assert!(text.contains(&format!("the block: {block}")), "{text}\n{words}");
    // The mean of a byte: an allocation of 1000 stands for itself.
    assert_eq!((size, weight, freed), ("1000", "1000", block), "{text}\n{words}");
}

fn written(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{}", std::process::id()));
    std::fs::write(&path, text).expect("the target directory can be written");
    path
}
