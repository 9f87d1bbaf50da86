//! Random histories of the whole heap against a model of what is held.

use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::units::PAGE;
use weir_core::platform::Diagnostics;

use crate::fake::{Call, Fake, run_on, run_on_node};
use crate::held::World;

#[derive(Clone, Debug)]
pub enum Step {
    Alloc(usize),
    Zeroed(usize),
    Aligned(u32, usize),
    Low(usize),
    /// Many objects of one size, so that buckets overflow and slabs fill.
    Burst(usize, usize),
    /// Frees a share of what is held, oldest first: slabs empty, pageblocks get holes.
    Thin(usize, usize),
    Realloc(usize, usize),
    Free(usize),
    FreeSized(usize),
    Calm(u64),
    Pressure(Level),
    Trim,
    /// Moves the blocks that lie where few others are.
    Move,
    Report(bool),
    Cpu(usize),
    Node(usize),
    Fork,
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0usize..1100,
        3 => 1000usize..33_000,
        3 => 32_700usize..200_000,
        1 => 200_000usize..3 << 20,
        1 => (2usize << 20) - 5000..(4 << 20) + 5000,
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => size().prop_map(Step::Alloc),
        4 => size().prop_map(Step::Zeroed),
        3 => (0u32..24, size()).prop_map(|(shift, size)| Step::Aligned(shift, size)),
        1 => (1usize..300_000).prop_map(Step::Low),
        4 => (1usize..600, 0usize..5000).prop_map(|(n, size)| Step::Burst(n, size)),
        4 => (1usize..6, 0usize..6).prop_map(|(every, offset)| Step::Thin(every, offset)),
        6 => (any::<prop::sample::Index>(), size()).prop_map(|(i, size)| Step::Realloc(i.index(1 << 20), size)),
        8 => any::<prop::sample::Index>().prop_map(|i| Step::Free(i.index(1 << 20))),
        4 => any::<prop::sample::Index>().prop_map(|i| Step::FreeSized(i.index(1 << 20))),
        4 => (0u64..700).prop_map(Step::Calm),
        2 => Just(Step::Pressure(Level::Some)),
        2 => Just(Step::Pressure(Level::Severe)),
        1 => Just(Step::Trim),
        2 => Just(Step::Move),
        1 => any::<bool>().prop_map(Step::Report),
        3 => (0usize..4).prop_map(Step::Cpu),
        1 => (0usize..3).prop_map(Step::Node),
        1 => Just(Step::Fork),
    ]
}

pub fn apply(world: &mut World, step: &Step) {
    let pick = |i: usize, world: &World| (!world.held.is_empty()).then(|| i % world.held.len());
    match *step {
        Step::Alloc(size) => drop(world.alloc(size)),
        Step::Zeroed(size) => drop(world.alloc_zeroed(size)),
        Step::Aligned(shift, size) => drop(world.alloc_aligned(1 << shift, size)),
        Step::Low(size) => drop(world.alloc_low(size)),
        Step::Burst(n, size) => (0..n).for_each(|_| drop(world.alloc(size))),
        Step::Thin(every, offset) => {
            for i in (0..world.held.len()).rev().filter(|i| i % every == offset % every) {
                world.free(i, i % 2 == 0);
            }
        }
        Step::Realloc(i, size) => {
            if let Some(i) = pick(i, world) {
                world.realloc(i, size.max(1));
            }
        }
        Step::Free(i) | Step::FreeSized(i) => {
            if let Some(i) = pick(i, world) {
                world.free(i, matches!(step, Step::FreeSized(_)));
            }
        }
        Step::Calm(ms) => {
            world.fake().pass_ms(ms);
            world.heap.reclaim().balance_calm();
        }
        Step::Pressure(level) => drop(world.heap.reclaim().balance_pressure(level, Cause::Pressure)),
        Step::Trim => drop(world.heap.purge()),
        Step::Move => (0..world.held.len()).rev().for_each(|i| world.move_block(i)),
        Step::Report(on) => world.heap.reclaim().set_reporting(on),
        Step::Cpu(cpu) => run_on(cpu),
        Step::Node(node) => run_on_node(node),
        Step::Fork => {
            world.heap.fork().freeze();
            // SAFETY: frozen just now.
            unsafe { world.heap.fork().thaw() };
        }
    }
}

fn drop<T>(_: T) {}

#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub nodes: usize,
    pub lockless: bool,
    pub huge: bool,
    pub background: bool,
    pub lazy: bool,
    pub skipped: usize,
    pub unit: usize,
}

pub fn variant() -> impl Strategy<Value = Variant> {
    let units = prop_oneof![Just(PAGE), Just(16 << 10), Just(64 << 10)];
    (prop_oneof![Just(1usize), Just(3)], any::<[bool; 4]>(), prop_oneof![Just(0usize), 1usize..64], units).prop_map(
        |(nodes, [lockless, huge, background, lazy], skipped, unit)| Variant {
            nodes,
            lockless,
            huge,
            background,
            lazy,
            skipped,
            unit,
        },
    )
}

pub fn world(v: Variant) -> World {
    let mut fake = Fake::new();
    fake.lockless = v.lockless;
    (fake.skipped, fake.unit) = (v.skipped, v.unit);
    fake.node_count.store(v.nodes, Relaxed);
    fake.huge.store(v.huge, Relaxed);
    fake.tunables().background.set(v.background.into());
    fake.tunables().report_lazily.set(v.lazy.into());
    World::new(fake)
}

fn run_steps(world: &mut World, steps: &[Step]) {
    for (i, step) in steps.iter().enumerate() {
        apply(world, step);
        if i % 8 == 0 || matches!(step, Step::Calm(_) | Step::Pressure(_) | Step::Trim) {
            world.audit();
            world.check_contents();
        }
    }
}

/// Few enough cases for every run; `PROPTEST_CASES` asks for more.
pub fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 48 };
    ProptestConfig { cases, max_shrink_iters: 2000, failure_persistence: None, ..default }
}

/// A pattern of failures: rare, frequent, or in stretches.
fn failures() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        (0u32..64).prop_map(|bit| 1 << bit),
        any::<u64>(),
        any::<(u64, u64)>().prop_map(|(a, b)| a & b),
        Just(u64::MAX << 32),
        Just(u64::MAX),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_history_keeps_every_block_and_every_count(v in variant(), steps in prop::collection::vec(step(), 1..120)) {
        let mut world = world(v);
        run_steps(&mut world, &steps);
    }

    #[test]
    fn refused_memory_loses_nothing(
        v in variant(),
        steps in prop::collection::vec(step(), 1..120),
        plans in prop::array::uniform4(failures()),
    ) {
        let mut world = world(v);
        world.may_fail = true;
        for (call, plan) in [Call::Window, Call::MapAt, Call::Map, Call::Remap].into_iter().zip(plans) {
            world.fake().fail(call, plan);
        }
        run_steps(&mut world, &steps);
    }

    #[test]
    fn a_refused_release_leaves_blocks_as_they_were(
        v in variant(),
        steps in prop::collection::vec(step(), 1..120),
        plan in failures(),
    ) {
        let mut world = world(v);
        world.fake().fail(Call::Release, plan);
        run_steps(&mut world, &steps);
    }
}

/// It stays what it was. A history seldom comes to it.
#[test]
fn a_block_below_4_gib_does_not_grow_beyond_the_longest_run() {
    let v = Variant { nodes: 1, lockless: false, huge: false, background: false, lazy: false, skipped: 0, unit: PAGE };
    run_steps(&mut world(v), &[Step::Low(40_830), Step::Realloc(0, (4 << 20) + 1), Step::Realloc(0, 4 << 20)]);
}

/// A run that lies below 4 GiB because NORMAL was short may be resized to what the zone below 4 GiB does not have.
/// That is an object, or a block mapped on its own.
#[test]
fn a_run_that_fell_back_may_go_anywhere() {
    for size in [1, 64 << 10, 3 << 20, 8 << 20] {
        let v =
            Variant { nodes: 1, lockless: false, huge: false, background: false, lazy: false, skipped: 0, unit: PAGE };
        let mut world = world(v);
        let low = world.alloc_low(1).unwrap();
        world.free(low, false);
        world.may_fail = true;
        world.fake().fail(Call::Window, u64::MAX);
        let run = world.alloc(36_865).expect("of the zone below");
        assert!(world.held[run].addr < 4 << 30);
        world.fake().fail_nothing();
        world.may_fail = false;
        world.realloc(run, size);
        run_steps(&mut world, &[Step::Calm(0)]);
    }
}
