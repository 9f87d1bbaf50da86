//! Histories of the whole heap, on the tests' fake platform. No two blocks overlap, each keeps its contents, every count is
//! that of what is held, and at the end nothing is left.

#![no_main]

#[path = "../../crates/weir-core/tests/fake/mod.rs"]
mod fake;
#[path = "../../crates/weir-core/tests/engine/held.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod held;

use arbitrary::{Result, Unstructured};
use fake::{Call, Fake, run_on, run_on_node, run_on_none};
use held::World;
use libfuzzer_sys::fuzz_target;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::platform::Diagnostics;

/// Steps of a history at most.
const STEPS: usize = 160;
/// Bytes that are held at most, so that a run stays short.
const HELD: usize = 24 << 20;

fuzz_target!(|data: &[u8]| {
    // It ends where the input does.
    let _ = history(&mut Unstructured::new(data));
});

fn history(u: &mut Unstructured) -> Result<()> {
    let mut world = world(u)?;
    let ended = steps(u, &mut world);
    run_on(0);
    ended
}

fn world(u: &mut Unstructured) -> Result<World> {
    let (kind, failing): (u8, u8) = (u.arbitrary()?, u.arbitrary()?);
    let mut fake = Fake::new();
    fake.lockless = kind & 1 != 0;
    fake.skipped = usize::from(kind >> 6) * 21;
    fake.node_count.store(if kind & 2 != 0 { 3 } else { 1 }, Relaxed);
    fake.huge.store(kind & 4 != 0, Relaxed);
    fake.tunables().background.set((kind >> 3 & 1).into());
    fake.tunables().report_lazily.set((kind >> 4 & 1).into());
    fake.tunables().check.set((kind >> 5 & 1).into());
    let mut world = World::new(fake);
    for (i, call) in [Call::Window, Call::MapAt, Call::Map, Call::Remap, Call::Release].into_iter().enumerate() {
        if failing & 1 << i != 0 {
            world.may_fail |= call != Call::Release;
            world.fake().fail(call, u.arbitrary()?);
        }
    }
    Ok(world)
}

/// A size of one of the kinds that the engine treats apart.
fn size(u: &mut Unstructured) -> Result<usize> {
    Ok(match u.int_in_range(0..=13u8)? {
        0..=5 => u.int_in_range(0..=1100)?,
        6..=8 => u.int_in_range(1000..=33_000)?,
        9..=11 => u.int_in_range(32_700..=200_000)?,
        12 => u.int_in_range(200_000..=3 << 20)?,
        _ => u.int_in_range((2 << 20) - 5000..=(4 << 20) + 5000)?,
    })
}

fn steps(u: &mut Unstructured, world: &mut World) -> Result<()> {
    for i in 0..STEPS {
        if u.is_empty() {
            break;
        }
        if world.usable().map(|(_, len)| len).sum::<usize>() > HELD {
            (0..world.held.len().div_ceil(2)).for_each(|_| world.free(0, false));
        }
        if step(u, world)? || i % 8 == 0 {
            world.audit();
            world.check_contents();
        }
    }
    Ok(())
}

/// Does one step; whether it was one after which the heap is looked at.
fn step(u: &mut Unstructured, world: &mut World) -> Result<bool> {
    let pick = |u: &mut Unstructured, world: &World| -> Result<Option<usize>> {
        Ok(if world.held.is_empty() { None } else { Some(u.choose_index(world.held.len())?) })
    };
    match u.int_in_range(0..=19u8)? {
        0..=2 => drop(world.alloc(size(u)?)),
        3 => drop(world.alloc_zeroed(size(u)?)),
        4 => drop(world.alloc_aligned(1 << u.int_in_range(0..=23)?, size(u)?)),
        5 => drop(world.alloc_low(u.int_in_range(1..=300_000)?)),
        6 => {
            let (count, size): (u16, usize) = (u.int_in_range(1..=400)?, u.int_in_range(0..=5000)?);
            (0..count).for_each(|_| drop(world.alloc(size)));
        }
        7 => {
            let (every, offset): (usize, usize) = (u.int_in_range(1..=6)?, u.int_in_range(0..=5)?);
            for i in (0..world.held.len()).rev().filter(|i| i % every == offset % every) {
                world.free(i, i % 2 == 0);
            }
        }
        8 | 9 => {
            if let Some(i) = pick(u, world)? {
                world.realloc(i, size(u)?.max(1));
            }
        }
        10..=12 => {
            if let Some(i) = pick(u, world)? {
                world.free(i, u.arbitrary()?);
            }
        }
        13 => {
            world.fake().pass_ms(u.int_in_range(0..=700)?);
            world.heap.reclaim().balance_calm();
            return Ok(true);
        }
        14 => {
            let level = if u.arbitrary()? { Level::Severe } else { Level::Some };
            world.heap.reclaim().balance_pressure(level, Cause::Pressure);
            return Ok(true);
        }
        15 => {
            world.heap.purge();
            return Ok(true);
        }
        16 => world.heap.reclaim().set_reporting(u.arbitrary()?),
        17 => match u.int_in_range(0..=4)? {
            4 => run_on_none(),
            cpu => run_on(cpu),
        },
        18 => run_on_node(u.int_in_range(0..=2)?),
        _ => {
            world.heap.fork().freeze();
            // SAFETY: frozen just now.
            unsafe { world.heap.fork().thaw() };
        }
    }
    Ok(false)
}

fn drop<T>(_: T) {}
