//! Parts of the fast path, read off the finished library and held against `fast_path.golden`, so that a regression shows. These
//! are the instructions, loads, stores and branches of `malloc`, `free` and the aligned forms up to their return. And how many
//! instructions a `realloc` takes that leaves its block as it is.

use crate::common::{Kind, Mode, compile, describe, optimised, run_under, succeeded};
use std::process::Command;

#[derive(Debug, Default, PartialEq, Eq)]
struct Mix {
    instructions: usize,
    loads: usize,
    stores: usize,
    branches: usize,
}

/// Instructions of a `realloc` that leaves its block as it is, the call's own among them.
const MOST_OF_RESIZE: u32 = 40;

/// The straight line from a function's first instruction to its first return: the slow paths are elsewhere. A jump that is
/// always taken leads on.
fn mix(code: &str, address: &str) -> Mix {
    let mut mix = Mix::default();
    let from = |address: &str| {
        let begin = format!("{address}:\t");
        code.lines().map(str::trim_start).skip_while(move |line| !line.starts_with(&begin))
    };
    let mut body = from(address);
    while let Some(line) = body.next() {
        let Some((_, instruction)) = line.split_once('\t') else { continue };
        let instruction = instruction.split('#').next().unwrap_or_default().trim();
        let (name, operands) = instruction.split_once(' ').unwrap_or((instruction, ""));
        mix.instructions += 1;
        if name.starts_with("ret") {
            return mix;
        }
        if name == "jmp" {
            body = from(operands.trim().split(' ').next().unwrap_or_default());
            continue;
        }
        mix.branches += usize::from(name.starts_with('j'));
        // AT&T syntax: the last operand is the target; one in parentheses is memory.
        let target_is_memory = operands.trim().ends_with(')');
        let memory = operands.contains('(') && !name.starts_with("lea") && !name.starts_with('j');
        let only_reads = name.starts_with("cmp") || name.starts_with("test");
        let changes = name.starts_with("inc") || name.starts_with("dec") || name.starts_with("add");
        mix.stores += usize::from(memory && target_is_memory && !only_reads);
        mix.loads += usize::from(memory && (!target_is_memory || only_reads || changes));
    }
    panic!("no return after {address}");
}

fn golden(name: &str) -> Mix {
    let line = include_str!("fast_path.golden")
        .lines()
        .find(|line| line.split(' ').next() == Some(name))
        .expect("a golden line");
    let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    Mix { instructions: numbers[0], loads: numbers[1], stores: numbers[2], branches: numbers[3] }
}

#[test]
fn no_longer_than_the_golden_one() {
    let Some(library) = optimised() else { return };
    let read = |tool: &str, arguments: &[&str]| {
        let output = Command::new(tool).args(arguments).arg(&library).output();
        let Ok(output) = output else {
            weir_testing::skip!("no {tool}; Debian has it in binutils");
            return None;
        };
        assert!(output.status.success(), "{tool}: {}", describe(&output));
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(symbols) = read("nm", &["-D", "--defined-only"]) else { return };
    let Some(code) = read("objdump", &["-d", "--no-show-raw-insn"]) else { return };
    for name in ["malloc", "free", "aligned_alloc", "memalign", "posix_memalign", "_ZnwmSt11align_val_t"] {
        let symbol = symbols.lines().find(|line| line.ends_with(&format!(" T {name}"))).expect("an exported function");
        let address = symbol.split(' ').next().unwrap_or_default().trim_start_matches('0');
        let (now, was) = (mix(&code, address), golden(name));
        println!("{name}: {now:?}");
        let worse = [(now.instructions, was.instructions), (now.loads, was.loads), (now.stores, was.stores)];
        assert!(worse.iter().all(|(now, was)| now <= was), "{name} became {now:?}, was {was:?}");
        assert!(now.branches <= was.branches, "{name} became {now:?}, was {was:?}");
        // A shorter line would be that of a refusal: the object comes from a bucket in all three.
        assert!(!name.contains("align") || now.loads == was.loads, "{name} became {now:?}, was {was:?}");
    }
}

/// A resize of a run of pages or of an object takes few instructions: neither is looked up, locked, or looked for among samples.
#[test]
fn a_resize_that_changes_nothing_takes_few_instructions() {
    let (Some(library), Some(program)) = (optimised(), compile(Kind::C, "resize_steps.c")) else { return };
    let output = run_under(Some(&library), &program, &[], Mode::Plain, &[]);
    if !succeeded("resize_steps.c", &output) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    for what in ["run", "object"] {
        let line = text.lines().find_map(|line| line.strip_prefix(what)).expect("a line of each");
        let steps: u32 = line.trim().parse().expect("a number");
        println!("{what}: {steps}");
        assert!(steps <= MOST_OF_RESIZE, "realloc of {what} in its place takes {steps} instructions");
    }
}

/// Optimised, the operators jump to the slow path that throws: no Rust frame is left for an exception to pass.
#[test]
fn no_rust_frame_below_a_throw() {
    let Some(library) = optimised() else { return };
    let Some(program) = compile(Kind::Cxx, "contract/cxx/operators.cpp") else { return };
    let output = run_under(Some(&library), &program, &[], Mode::Plain, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.lines().any(|line| line == "1 frames"), "{}", describe(&output));
}
