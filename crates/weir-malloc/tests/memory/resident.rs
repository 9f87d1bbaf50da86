//! Resident memory of a program's heap at most: of buffers that grow, and of one whose sizes change. Compared with what
//! lived, and with the C library's own malloc.

use crate::common::{Kind, Mode, compile, describe, foreign, passes, run};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// KiB that the library itself has resident beside the heap: its pages (1 MiB more of an unoptimised one), tables, a CPU's
/// caches. One buffer that is copied by 4 KiB to 2 MB needs most of it: 6.9 to 8.9 MiB from run to run, 8.2 optimised.
const OWN: u64 = 7 << 9;

/// The numbers that a program prints.
fn numbers(stdout: &[u8]) -> Vec<u64> {
    String::from_utf8_lossy(stdout).split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// Most that lived, and the peak of the resident set, KiB.
fn peaks_of(program: &Path, arguments: &[&str], environment: &[(&str, OsString)]) -> [u64; 2] {
    let output = run(program, arguments, Mode::Plain, environment);
    assert!(output.status.success(), "{arguments:?}: {}", describe(&output));
    let ours = numbers(&output.stdout);
    [ours[0], ours[1]]
}

/// The peak without the library, KiB. All that lives is resident, so it is no less than that: it is asked for what exceeds that.
fn systems_peak(program: &Path, arguments: &[&str]) -> u64 {
    let system = Command::new(program).args(arguments).output().expect("it was compiled just now");
    assert!(system.status.success(), "{arguments:?} without the library: {}", describe(&system));
    numbers(&system.stdout)[1]
}

/// A huge page behind each touched pageblock is the machine's wish, and no matter of where blocks lie.
fn huge_pages_come_unasked() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let is = mode.contains("[always]");
    if is || foreign() {
        weir_testing::skip!("needs the library, and huge pages that are not `always` (mode: {})", mode.trim());
    }
    is || foreign()
}

#[test]
fn buffers_that_grow() {
    let Some(program) = compile(Kind::C, "grow.c").filter(|_| !huge_pages_come_unasked()) else { return };
    let mut faults = Vec::new();
    for how in ["realloc", "copy"] {
        for step in ["0", "4096", "70000"] {
            for (len, count) in [("2000000", "1"), ("4194304", "2"), ("1000000", "20")] {
                for small in ["0", "4096"] {
                    // Copied by each 4 KiB, two buffers of 4 MiB take 8 GiB of copies: several of them go by 16 KiB.
                    let step = if (how, step) == ("copy", "4096") && count != "1" { "16384" } else { step };
                    let arguments = [how, step, len, count, small];
                    let exceeds = |[live, ours]: &[u64; 2]| {
                        *ours > live * 130 / 100 + OWN && *ours > systems_peak(&program, &arguments) * 115 / 100 + OWN
                    };
                    // A program that is moved between CPUs has runs kept on each: on a busy machine one in ten exceeds the bound.
                    let tries: Vec<_> =
                        (0..3).map(|_| peaks_of(&program, &arguments, &[])).take_while(exceeds).collect();
                    if let [[live, ours], _, _] = tries[..] {
                        faults.push(format!("{arguments:?}: {ours} KiB for {live}"));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn sizes_that_change() {
    let Some(program) = compile(Kind::C, "sizes.c").filter(|_| !huge_pages_come_unasked()) else { return };
    let mut faults = Vec::new();
    // What is full for a while gets huge pages, so a program that is stopped in between has more.
    for before in ["300000", "614400", "2097152", "2621440", "3145728", "5242880"] {
        for after in ["4096", "20000", "300000", "2097152", "5242880"] {
            for keep in ["0", "20"] {
                let arguments = [before, keep, after];
                let [live, ours] = peaks_of(&program, &arguments, &[("WEIR_HUGE_BLOCKS", "0".into())]);
                if ours > live * 110 / 100 + OWN && ours > systems_peak(&program, &arguments) * 110 / 100 + OWN {
                    faults.push(format!("{arguments:?}: {ours} KiB for {live}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Freed blocks are kept for the next; that may cost little at the peak.
#[test]
fn peaks() {
    for pattern in ["doubling", "doubling-in-turn", "eighths-in-turn", "bursts", "beside-a-sparse-table"] {
        passes(Kind::C, "peaks.c", &[pattern], Mode::Plain);
    }
}
