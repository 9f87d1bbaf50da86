//! Blocks mapped on their own, and where in the address space they and the heap come to lie.

use crate::common::{Kind, Mode, compile, describe, run, succeeded};
use crate::{in_all_modes, passing};
use std::path::Path;

passing! {
    /// The program gave the kernel advice on a part of a block, which made several mappings of one.
    advised_blocks: "advised.c";
    /// Writing past the end of a block mapped on its own reaches no free pointers.
    metadata_lies_apart: "placement.c", "beside";
}

/// mmap's area from a third of the address space upwards, as `setarch -L` has it.
fn legacy_layout(mode: Mode) {
    layout("legacy", mode);
}

/// mmap's area below a sixth of the address space (in old kernels, the legacy layout), as `ulimit -s unlimited` has it.
fn unlimited_stack(mode: Mode) {
    layout("stack", mode);
}

fn layout(name: &str, mode: Mode) {
    let Some(program) = compile(Kind::C, "layouts.c") else { return };
    succeeded(&format!("layouts.c {name} in mode {mode:?}"), &run(&program, &[name], mode, &[]));
}

in_all_modes! { legacy_layout unlimited_stack }

/// Addresses in each of some processes. They are of a run of pages, a block mapped on its own, metadata, a small block and a
/// mapping of the program's.
fn places(processes: usize) -> Option<Vec<[u64; 5]>> {
    let program = compile(Kind::C, "placement.c")?;
    let place = |_| {
        let output = run(&program, &[], Mode::Plain, &[]);
        assert!(output.status.success(), "placement.c: {}", describe(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers = text.split_whitespace().map(|n| u64::from_str_radix(n.trim_start_matches("0x"), 16).unwrap());
        numbers.collect::<Vec<_>>().try_into().unwrap()
    };
    Some((0..processes).map(place).collect())
}

/// Under a debugger a block lies where it lay in the last run.
#[test]
fn without_chance_in_addresses_they_are_the_same_in_each_run() {
    let Some(program) = compile(Kind::C, "placement.c") else { return };
    let places = || {
        let output = run(Path::new("setarch"), &["-R", program.to_str().unwrap()], Mode::Plain, &[]);
        output.status.success().then_some(output.stdout)
    };
    let Some(first) = places() else { return weir_testing::skip!("no setarch, or it may not switch chance off") };
    assert_eq!(places().map(|again| again == first), Some(true), "{}", String::from_utf8_lossy(&first));
}

/// Bits of an address that are 0 in some processes and 1 in others. With 40 processes chance misses one in 2^39.
fn changing(places: &[[u64; 5]], which: usize) -> u32 {
    let (ones, zeros) = places.iter().fold((0, 0), |(ones, zeros), place| (ones | place[which], zeros | !place[which]));
    (ones & zeros).count_ones()
}

#[test]
fn chance_places_the_heap_blocks_and_metadata() {
    let randomized = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space");
    if crate::common::foreign() || randomized.is_ok_and(|on| on.trim() == "0") {
        return weir_testing::skip!("nothing is placed by chance");
    }
    let Some(places) = places(40) else { return };
    for (which, what) in ["the heap", "blocks of their own", "metadata", "small blocks"].into_iter().enumerate() {
        let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        // A block that is to have huge pages begins at one: 9 bits less than mmap's area has.
        let bits = if which == 1 && huge.contains("[always]") { 18 } else { 27 };
        // Below a library of 2 MiB and more, which Linux begins at such an address, all mappings follow each other.
        let bits = if which == 1 { bits.min(changing(&places, 4)) } else { bits };
        let got = changing(&places, which);
        assert!(got >= bits, "{what}: {got} bits change: {places:x?}");
    }
}
