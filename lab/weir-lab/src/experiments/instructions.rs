//! How many instructions a call of malloc and of free is, counted one by one.

use crate::harness::args::RunArgs;
use crate::harness::child::{command, load_program};
use crate::harness::json::by_name;
use crate::harness::rounds;
use crate::harness::single_step::{Call, Counting};
use crate::harness::statistics::{Sample, student};
use crate::harness::tables::{Table, short};
use crate::peers::Allocator;
use serde_json::{Value, json};

/// The sizes of the blocks; the quick run counts the first alone, as a step can cost 50 us.
const SIZES: [u64; 4] = [64, 16, 512, 4096];
/// How the calls follow each other, and what that shows.
const MANNERS: [(&str, &str); 2] = [
    ("few", "4 live: the fast path (median of the calls)"),
    ("many", "400 live: what slower paths add (mean of the calls)"),
];
const CALLS: [&str; 2] = ["malloc", "free"];

/// Instructions a call of one allocator: by size, manner, and function; a measurement a round.
struct Cell {
    counted: [[[Sample; CALLS.len()]; MANNERS.len()]; SIZES.len()],
    failed: Option<String>,
}

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    // The same instructions every time, but for what background threads do: more rounds show only that.
    let rounds = args.rounds;
    let mut cells: Vec<Cell> = allocators.iter().map(|_| Cell { counted: Default::default(), failed: None }).collect();
    for (round, chosen) in rounds::of(rounds, allocators.len()) {
        let (allocator, cell) = (&allocators[chosen], &mut cells[chosen]);
        eprintln!("calls, round {} of {rounds}: {}", round + 1, allocator.name);
        if cell.failed.is_none()
            && let Err(why) = measure(allocator, args.quick, cell)
        {
            eprintln!("{}: {why}", allocator.name);
            cell.failed = Some(why);
        }
    }
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    print(&names, &args.subject, &cells, sizes(args.quick));
    Ok(as_json(&names, &args.subject, rounds, &cells))
}

fn measure(allocator: &Allocator, quick: bool, cell: &mut Cell) -> Result<(), String> {
    for (size, by_manner) in SIZES.iter().zip(&mut cell.counted).take(sizes(quick)) {
        for ((manner, _), samples) in MANNERS.iter().zip(by_manner) {
            let counted = count(allocator, *size, manner)?;
            for (function, sample) in samples.iter_mut().enumerate() {
                let of_this = counted.iter().filter(|(called, _)| *called == function);
                let calls: Sample = of_this.map(|&(_, instructions)| instructions as f64).collect();
                if calls.len() == 0 {
                    return Err("its malloc or free was never entered".into());
                }
                sample.push(if *manner == "few" { calls.median() } else { calls.mean() });
            }
        }
    }
    Ok(())
}

/// How many of the sizes are counted.
fn sizes(quick: bool) -> usize {
    if quick { 1 } else { SIZES.len() }
}

fn count(allocator: &Allocator, size: u64, manner: &str) -> Result<Vec<Call>, String> {
    let mut start = command(load_program()?, allocator);
    start.args(["calls", &size.to_string(), manner]);
    Counting { functions: &CALLS, copies: &[], system_call: 1, enough: u64::MAX, least: 0 }.count(start)
}

fn print(names: &[&str], subject: &str, cells: &[Cell], sizes: usize) {
    let counted = sizes * CALLS.len();
    let header = || std::iter::once("allocator".to_string()).chain(columns().take(counted));
    for (manner, (_, about)) in MANNERS.iter().enumerate() {
        println!("## Instructions a call, {about}\n");
        let mut table = Table::new(header());
        for (name, cell) in names.iter().zip(cells) {
            let shown = samples(cell, manner).take(counted).map(|sample| short(sample.median()));
            let shown: Vec<String> = if cell.failed.is_some() { vec!["failed".into()] } else { shown.collect() };
            table.row(std::iter::once(name.to_string()).chain(shown));
        }
        if let Some(at) = names.iter().position(|name| *name == subject) {
            let verdicts = (0..counted).map(|column| verdict(names, at, cells, manner, column));
            table.row(std::iter::once(format!("{subject} against the best peer")).chain(verdicts));
        }
        println!("{table}");
    }
    println!("From the entry of the function to its return, both counted; the jump through the PLT is not.");
}

fn columns() -> impl Iterator<Item = String> {
    SIZES.into_iter().flat_map(|size| CALLS.into_iter().map(move |call| format!("{call} {size} B")))
}

/// One manner's samples, in the order of [`columns`].
fn samples(cell: &Cell, manner: usize) -> impl Iterator<Item = &Sample> {
    cell.counted.iter().flat_map(move |by_manner| &by_manner[manner])
}

fn verdict(names: &[&str], at: usize, cells: &[Cell], manner: usize, column: usize) -> String {
    let of = |index: usize| samples(&cells[index], manner).nth(column).filter(|_| cells[index].failed.is_none());
    let peers = (0..cells.len()).filter(|&index| index != at).filter_map(|index| Some((index, of(index)?)));
    match (of(at), peers.min_by(|a, b| a.1.median().total_cmp(&b.1.median()))) {
        // Counts without any spread need no statistics.
        (Some(own), Some((best, peer))) if own.max() == own.min() && peer.max() == peer.min() => {
            format!("{}: {:+.1}", names[best], own.median() - peer.median())
        }
        (Some(own), Some((best, peer))) => format!("{}: {}", names[best], student(own, peer)),
        _ => "-".into(),
    }
}

fn as_json(names: &[&str], subject: &str, rounds: u32, cells: &[Cell]) -> Value {
    let cell = |cell: &Cell| {
        let manners = MANNERS.iter().enumerate().map(|(manner, (name, _))| {
            let columns: serde_json::Map<_, _> = columns().zip(samples(cell, manner).map(Sample::json)).collect();
            (name.to_string(), Value::Object(columns))
        });
        json!({ "instructions": Value::Object(manners.collect()), "failed": cell.failed })
    };
    let all = by_name(names, cells, cell);
    let failed = names.iter().position(|name| *name == subject).and_then(|at| cells[at].failed.clone());
    json!({ "runs": rounds, "cells": all, "failed": failed })
}
