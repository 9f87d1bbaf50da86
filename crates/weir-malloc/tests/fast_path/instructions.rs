//! Parts of the fast path, read off the finished library and held against a golden file, so that a regression shows. These are
//! the instructions, loads, stores and branches of `malloc`, `free` and the aligned forms up to their return. There is a golden
//! file for each processor; the library says for which it is. And how many instructions a `realloc` takes that leaves its block
//! as it is.

use crate::common::{Kind, Mode, compile, describe, optimised, run_under, succeeded};
use std::path::Path;
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

/// What a library is for: the binary utilities' prefix, the golden file, and what an instruction is.
struct Processor {
    prefix: &'static str,
    golden: &'static str,
    jump: &'static str,
    count: fn(&str, &str, &mut Mix),
}

const X86_64: Processor =
    Processor { prefix: "", golden: include_str!("x86_64.golden"), jump: "jmp", count: count_on_x86_64 };
const ARM64: Processor = Processor {
    prefix: "aarch64-linux-gnu-",
    golden: include_str!("aarch64.golden"),
    jump: "b",
    count: count_on_arm64,
};

/// By the machine in the library's header.
fn processor(library: &Path) -> Processor {
    let header = std::fs::read(library).expect("a library");
    match u16::from_le_bytes([header[18], header[19]]) {
        62 => X86_64,
        183 if cfg!(target_arch = "aarch64") => Processor { prefix: "", ..ARM64 },
        183 => ARM64,
        other => panic!("a library for machine {other}"),
    }
}

/// The straight line from a function's first instruction to its first return: the slow paths are elsewhere. A jump that is
/// always taken leads on.
fn mix(code: &str, address: &str, processor: &Processor) -> Mix {
    let mut mix = Mix::default();
    let from = |address: &str| {
        let begin = format!("{address}:\t");
        code.lines().map(str::trim_start).skip_while(move |line| !line.starts_with(&begin))
    };
    let mut body = from(address);
    while let Some(line) = body.next() {
        let Some((_, instruction)) = line.split_once('\t') else { continue };
        let (name, operands) = instruction.split_once([' ', '\t']).unwrap_or((instruction, ""));
        let operands = operands.trim();
        mix.instructions += 1;
        if name.starts_with("ret") {
            return mix;
        }
        if name == processor.jump {
            body = from(operands.split(' ').next().unwrap_or_default());
        } else {
            (processor.count)(name, operands, &mut mix);
        }
    }
    panic!("no return after {address}");
}

fn count_on_x86_64(name: &str, operands: &str, mix: &mut Mix) {
    let operands = operands.split('#').next().unwrap_or_default().trim();
    mix.branches += usize::from(name.starts_with('j'));
    // AT&T syntax: the last operand is the target; one in parentheses is memory.
    let target_is_memory = operands.ends_with(')');
    let memory = operands.contains('(') && !name.starts_with("lea") && !name.starts_with('j');
    let only_reads = name.starts_with("cmp") || name.starts_with("test");
    let changes = name.starts_with("inc") || name.starts_with("dec") || name.starts_with("add");
    mix.stores += usize::from(memory && target_is_memory && !only_reads);
    mix.loads += usize::from(memory && (!target_is_memory || only_reads || changes));
}

fn count_on_arm64(name: &str, _operands: &str, mix: &mut Mix) {
    mix.branches += usize::from(["b.", "cb", "tb"].iter().any(|branch| name.starts_with(branch)));
    mix.loads += usize::from(name.starts_with("ld"));
    mix.stores += usize::from(name.starts_with("st"));
}

fn golden(name: &str, processor: &Processor) -> Mix {
    let line = processor.golden.lines().find(|line| line.split(' ').next() == Some(name)).expect("a golden line");
    let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    Mix { instructions: numbers[0], loads: numbers[1], stores: numbers[2], branches: numbers[3] }
}

#[test]
fn no_longer_than_the_golden_one() {
    let Some(library) = optimised() else { return };
    let processor = processor(&library);
    let read = |tool: &str, arguments: &[&str]| {
        let output = Command::new(format!("{}{tool}", processor.prefix)).args(arguments).arg(&library).output();
        let Ok(output) = output else {
            weir_testing::skip!("no {}{tool}; Debian has it in binutils", processor.prefix);
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
        let (now, was) = (mix(&code, address, &processor), golden(name, &processor));
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
