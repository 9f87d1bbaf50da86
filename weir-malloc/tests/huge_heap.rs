//! Huge pages behind the heap of a program that asks for them (`huge_heap`), where the system gives them when asked.

mod common;
use common::{Kind, Mode, compile, describe, foreign, run};

#[test]
fn the_heap_is_in_huge_pages_while_it_asks() {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !mode.contains("[madvise]") || foreign() {
        println!("SKIPPED: needs the library, and huge pages that are `madvise` (mode: {})", mode.trim());
        return;
    }
    let Some(program) = compile(Kind::C, "huge_heap.c") else { return };
    for (at_start, first) in [("1", true), ("0", false)] {
        let output = run(&program, &[], Mode::Plain, &[("WEIR_HUGE_HEAP", at_start.into())]);
        assert!(output.status.success(), "{}", describe(&output));
        let said = String::from_utf8_lossy(&output.stdout);
        let parts: Vec<i64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        // Of 48 MiB. A part ends in the pageblock in which the next one begins, and the machine may be out of huge pages for a
        // moment.
        let are_huge: Vec<bool> = parts.iter().map(|&kib| kib > 24 << 10).collect();
        assert_eq!(are_huge, [first, false, true], "{parts:?} KiB with {at_start} at the start");
    }
}
