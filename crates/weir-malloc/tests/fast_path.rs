//! What the fast path is made of: instructions, loads, stores and branches of `malloc` and `free` up to their return,
//! read off the finished library and held against `fast_path.golden`, so that a regression shows.

mod common;
use common::{describe, optimised};
use std::process::Command;

#[derive(Debug, Default, PartialEq, Eq)]
struct Mix {
    instructions: usize,
    loads: usize,
    stores: usize,
    branches: usize,
}

/// The straight line from a function's first instruction to its first return: the slow paths are elsewhere.
fn mix(code: &str, address: &str) -> Mix {
    let mut mix = Mix::default();
    let begin = format!("{address}:\t");
    let body = code.lines().map(str::trim_start).skip_while(|line| !line.starts_with(&begin));
    for line in body {
        let Some((_, instruction)) = line.split_once('\t') else { continue };
        let instruction = instruction.split('#').next().unwrap_or_default().trim();
        let (name, operands) = instruction.split_once(' ').unwrap_or((instruction, ""));
        mix.instructions += 1;
        if name.starts_with("ret") {
            return mix;
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
    let line = include_str!("fast_path.golden").lines().find(|line| line.starts_with(name)).expect("a golden line");
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
    for name in ["malloc", "free"] {
        let symbol = symbols.lines().find(|line| line.ends_with(&format!(" T {name}"))).expect("an exported function");
        let address = symbol.split(' ').next().unwrap_or_default().trim_start_matches('0');
        let (now, was) = (mix(&code, address), golden(name));
        println!("{name}: {now:?}");
        let worse = [(now.instructions, was.instructions), (now.loads, was.loads), (now.stores, was.stores)];
        assert!(worse.iter().all(|(now, was)| now <= was), "{name} became {now:?}, was {was:?}");
        assert!(now.branches <= was.branches, "{name} became {now:?}, was {was:?}");
    }
}
