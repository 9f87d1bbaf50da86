//! How long CPUs wait for locks, on machines of up to 256: a simulation in virtual time.
//!
//! One thread runs the engine for all CPUs. Each has a clock of its own, and the one that is furthest behind does the next step of
//! its work. A step takes [`CALL`] for each call, and what its locks take: the time until the holder before has given it back,
//! [`LINE`] where that was another CPU, and for as long as it is held what [`hold`] says. What is shared without a lock (words that
//! are exchanged, memory of other CPUs) costs nothing here.
#![cfg(debug_assertions)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use weir_core::heap::Heap;
use weir_core::platform::{Diagnostics, rank};

use crate::fake::{Call, Fake, Turn, run_on, run_on_node};
use std::sync::atomic::Ordering::Relaxed;

/// A malloc or a free on the fast path, ns: measured (docs/results/speed.md).
const CALL: u64 = 5;
/// A cache line that another CPU has written last, ns: of processors of one socket 40 to 100.
const LINE: u64 = 70;
/// How long a lock of each rank is held, ns: the medians that [`holds`] prints, with the engine optimised, rounded.
/// `pages`: of CPUs that the table of blocks looks at, a line each that another CPU writes.
fn hold(of: u32, pages: u64) -> u64 {
    match of {
        rank::DRAIN | rank::GROWTH => 5000,
        rank::ZONE => 500,
        rank::SHELLS => 400,
        rank::BLOCKS => 300 + pages * LINE,
        rank::SLABS => 150,
        rank::DEPOT => 100,
        _ => 50,
    }
}

/// What one CPU holds, and the state of its random numbers.
#[derive(Default)]
struct Cpu {
    held: VecDeque<*mut u8>,
    /// Of a program that grows and shrinks: it does the latter.
    shrinks: bool,
    random: u64,
}

impl Cpu {
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.random >> 33) as usize % below
    }
}

/// One step of one of a program's CPUs. Returns the calls that it made.
type Step = fn(&Heap<Fake>, &mut [Cpu], usize) -> u64;
/// A program, and its name.
type Program = (&'static str, Step);

fn alloc(heap: &Heap<Fake>, size: usize) -> *mut u8 {
    let block = heap.alloc(size);
    assert!(!block.is_null());
    block
}

/// Replaces the oldest of `count` blocks.
fn replace(heap: &Heap<Fake>, cpu: &mut Cpu, count: usize, size: usize) -> u64 {
    cpu.held.push_back(alloc(heap, size));
    let oldest = (cpu.held.len() > count).then(|| cpu.held.pop_front()).flatten();
    // SAFETY: each block is freed once.
    oldest.inspect(|&block| unsafe { heap.free(block) });
    1 + u64::from(oldest.is_some())
}

/// 64 small blocks of its own.
fn small(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    replace(heap, &mut cpus[at], 64, 64)
}

/// 1,000 blocks of 16 B to 2 KiB, of which one in 64 is freed by the next CPU.
fn shared(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    let size = 16 << cpus[at].random(8);
    if cpus[at].random(64) == 0 && cpus.len() > 1 {
        let block = alloc(heap, size);
        let next = (at + 1) % cpus.len();
        cpus[next].held.push_front(block);
        return 1;
    }
    replace(heap, &mut cpus[at], 1000, size)
}

/// All that a CPU allocates is freed by the next one, 120 blocks at a time.
fn handed(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    let from = (at + cpus.len() - 1) % cpus.len();
    let theirs: Vec<*mut u8> =
        if cpus[from].held.len() >= 120 { cpus[from].held.drain(..).collect() } else { Vec::new() };
    // SAFETY: each block is freed once.
    theirs.iter().for_each(|&block| unsafe { heap.free(block) });
    if cpus[at].held.len() < 240 {
        cpus[at].held.push_back(alloc(heap, 64));
        return 1 + theirs.len() as u64;
    }
    theirs.len() as u64
}

/// Each block is freed by a random CPU, 120 at a time: tasks that go to whichever thread is free.
fn stolen(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    if cpus[at].held.len() >= 120 {
        // SAFETY: each block is freed once.
        return cpus[at].held.drain(..).map(|block| unsafe { heap.free(block) }).count() as u64;
    }
    let to = cpus[at].random(cpus.len());
    let block = alloc(heap, 64);
    cpus[to].held.push_back(block);
    1
}

/// 16 blocks of 33 to 128 KiB.
fn middle(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    let size = (33 << 10) + cpus[at].random(95 << 10);
    replace(heap, &mut cpus[at], 16, size)
}

/// One block of 6 MiB, a call a step: so it is free at times while other CPUs go on.
fn single(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    match cpus[at].held.pop_front() {
        // SAFETY: each block is freed once.
        Some(block) => unsafe { heap.free(block) },
        None => cpus[at].held.push_back(alloc(heap, 6 << 20)),
    }
    1
}

/// Two blocks of 5 to 20 MiB.
fn large(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    let size = (5 << 20) + cpus[at].random(15 << 20);
    replace(heap, &mut cpus[at], 2, size)
}

/// Grows to 4,000 blocks of 256 B, and frees them all.
fn waves(heap: &Heap<Fake>, cpus: &mut [Cpu], at: usize) -> u64 {
    let cpu = &mut cpus[at];
    match if cpu.shrinks { cpu.held.pop_front() } else { None } {
        // SAFETY: each block is freed once.
        Some(block) => unsafe { heap.free(block) },
        None => cpu.held.push_back(alloc(heap, 256)),
    }
    cpu.shrinks = if cpu.shrinks { !cpu.held.is_empty() } else { cpu.held.len() == 4000 };
    1
}

const PROGRAMS: [Program; 8] = [
    ("small", small),
    ("shared", shared),
    ("handed", handed),
    ("stolen", stolen),
    ("middle", middle),
    ("single", single),
    ("large", large),
    ("waves", waves),
];

/// What a run took.
struct Outcome {
    /// Calls in a microsecond of all CPUs.
    rate: f64,
    /// Waits for locks of each rank, in parts of all time.
    waits: [f64; rank::COUNT as usize],
    turns: Vec<Turn>,
}

/// A machine's locks: when each is free, and who had it last.
#[derive(Default)]
struct Locks {
    of: HashMap<usize, (u64, usize)>,
    waits: [u64; rank::COUNT as usize],
    /// Pages of CPUs that the table of blocks looks at each time.
    pages: u64,
}

impl Locks {
    /// When a step is over that began at `now`, and had these turns.
    fn pass(&mut self, cpu: usize, mut now: u64, turns: &[Turn]) -> u64 {
        for turn in turns {
            let (free, last) = self.of.entry(turn.lock).or_insert((0, cpu));
            if turn.is_taken {
                let wait = free.saturating_sub(now);
                self.waits[turn.rank as usize] += wait;
                now += wait + if *last == cpu { 0 } else { LINE };
                *last = cpu;
            } else {
                now += hold(turn.rank, self.pages);
                *free = now;
            }
        }
        now
    }
}

/// `calls` calls of a CPU at least, on `count` CPUs, after as many that are not counted.
fn run((name, step): Program, count: usize, zone_cpus: usize, calls: u64) -> Outcome {
    let mut fake = Fake::new();
    fake.window = 64 << 30;
    fake.node_count.store(count.div_ceil(zone_cpus), Relaxed);
    let heap = Box::new(Heap::new(fake));
    let mut cpus: Vec<Cpu> = (0..count).map(|at| Cpu { random: at as u64, ..Cpu::default() }).collect();
    // Few blocks of random lengths fit as they are: then all free blocks of CPUs are looked for, of 32 at most.
    let pages = if name == "large" { count.min(32) as u64 } else { 0 };
    let (mut all_turns, mut locks) = (Vec::new(), Locks { pages, ..Locks::default() });
    let (mut begin, mut done) = (0, 0);
    let mut clocks: BinaryHeap<_> = (0..count).map(|cpu| Reverse((0, cpu))).collect();
    *heap.platform().turns.lock().unwrap() = Some(Vec::new());
    let (warm, enough) = (calls * count as u64, 2 * calls * count as u64);
    let mut now = 0;
    while done < enough {
        let Reverse((at, cpu)) = clocks.pop().unwrap();
        now = at;
        if begin == 0 && done >= warm {
            (begin, locks.waits) = (now, Default::default());
        }
        run_on(cpu);
        run_on_node(cpu / zone_cpus);
        let made = step(&heap, &mut cpus, cpu);
        let turns = heap.platform().turns.lock().unwrap().replace(Vec::new()).unwrap();
        done += made;
        clocks.push(Reverse((locks.pass(cpu, now + made.max(1) * CALL, &turns), cpu)));
        all_turns.extend(turns);
    }
    *heap.platform().turns.lock().unwrap() = None;
    for (at, cpu) in cpus.iter_mut().enumerate() {
        run_on(at);
        // SAFETY: each block is freed once.
        cpu.held.drain(..).for_each(|block| unsafe { heap.free(block) });
    }
    let time = (now - begin).max(1) as f64;
    let waits = locks.waits.map(|wait| wait as f64 / time / count as f64);
    Outcome { rate: (done - warm) as f64 * 1000.0 / time, waits, turns: all_turns }
}

/// Calls of each CPU before those that are counted, and as many of these.
fn calls(name: &str) -> u64 {
    if name == "large" { 100 } else { 10_000 }
}

/// A zone a machine is what limits these programs from a few CPUs on, and a zone for eight CPUs more than makes up for it.
#[test]
fn further_zones_serve_further_cpus() {
    for (name, step, least) in [("handed", handed as Step, 1.5), ("middle", middle, 3.0), ("waves", waves, 3.0)] {
        let [one, many] = [32, 8].map(|zone_cpus| run((name, step), 32, zone_cpus, 8000).rate);
        assert!(many >= least * one, "{name}: {many} calls/us of four zones, {one} of one");
    }
}

/// A batch whose objects are of several nodes goes to the depot of each by one visit, however they are mixed.
#[test]
fn a_batch_takes_the_lock_of_each_depot_once() {
    const NODES: usize = 4;
    let fake = Fake::new();
    fake.node_count.store(NODES, Relaxed);
    let heap = Box::new(Heap::new(fake));
    let mut of_nodes: Vec<Vec<*mut u8>> = (0..NODES)
        .map(|node| {
            run_on(node);
            run_on_node(node);
            (0..256).map(|_| alloc(&heap, 64)).collect()
        })
        .collect();
    // The second CPU of the first node: its bucket holds nothing yet.
    run_on(NODES);
    run_on_node(0);
    let misses = || heap.platform().stats().free_misses.load(Relaxed);
    let before = misses();
    *heap.platform().turns.lock().unwrap() = Some(Vec::new());
    for i in 0..NODES * 256 {
        let block = of_nodes[i % NODES].pop().unwrap();
        // SAFETY: each block is freed once.
        unsafe { heap.free(block) };
    }
    let turns = heap.platform().turns.lock().unwrap().take().unwrap();
    let visits = turns.iter().filter(|turn| turn.rank == rank::DEPOT && turn.is_taken).count() as u64;
    let batches = misses() - before;
    // A depot that lacks shells takes a few turns more.
    assert!(batches >= 8 && visits <= NODES as u64 * (batches + 8), "{visits} visits for {batches} batches");
    heap.audit().unwrap();
}

/// A process on the second of two nodes maps what malloc's classes need there once for all of them.
#[test]
fn a_process_on_another_node_makes_few_mappings_for_its_classes() {
    let calls = |node| {
        let fake = Fake::new();
        fake.node_count.store(2, Relaxed);
        let heap = Box::new(Heap::new(fake));
        run_on_node(node);
        let blocks: Vec<_> = (1..=60).map(|class| alloc(&heap, class * 100)).collect();
        // SAFETY: each block is freed once.
        blocks.into_iter().for_each(|block| unsafe { heap.free(block) });
        heap.audit().unwrap();
        run_on_node(0);
        heap.platform().calls(Call::Map)
    };
    let [first, second] = [0, 1].map(calls);
    assert!(second <= first + 1, "{second} mappings for {first} on the first node");
}

/// `cargo test -p weir-memory-core --test engine -- --ignored --nocapture many_cpus`
#[test]
#[ignore = "run by hand: prints the table of docs/results/threads.md"]
fn curves() {
    for (name, step) in PROGRAMS {
        for (count, zone_cpus) in [
            (1, 1),
            (2, 2),
            (4, 4),
            (8, 8),
            (16, 16),
            (32, 32),
            (64, 64),
            (256, 256),
            (16, 8),
            (64, 4),
            (64, 8),
            (64, 16),
            (256, 8),
            (256, 16),
            (256, 32),
            (256, 64),
        ] {
            let outcome = run((name, step), count, zone_cpus, calls(name));
            let waits = outcome.waits.iter().zip(0..).filter(|(wait, _)| **wait > 0.01);
            let waits: Vec<_> = waits.map(|(wait, at)| format!("{} {:.0} %", rank::name(at), wait * 100.0)).collect();
            println!(
                "{name:8} {count:4} CPUs, {zone_cpus:4} a zone: {:9.1} calls/us; {}",
                outcome.rate,
                waits.join(", ")
            );
        }
    }
}

/// By the machine's clock, which takes some 40 ns of each.
#[test]
#[ignore = "run by hand: prints how long locks are held here"]
fn holds() {
    for (name, step) in PROGRAMS {
        let turns = run((name, step), 4, 4, calls(name)).turns;
        let mut held: HashMap<u32, Vec<u128>> = HashMap::new();
        for (at, turn) in turns.iter().enumerate().filter(|(_, turn)| turn.is_taken) {
            let end = turns[at..].iter().find(|end| end.lock == turn.lock && !end.is_taken);
            held.entry(turn.rank).or_default().extend(end.map(|end| (end.at - turn.at).as_nanos()));
        }
        for (at, mut times) in held {
            times.sort_unstable();
            println!("{name:8} {:12} {:6} turns, median {:6} ns", rank::name(at), times.len(), times[times.len() / 2]);
        }
    }
}
