//! What is run, and the rows that come of it.

use super::tenant::{Tenant, TenantKind, TenantRow, TenantStarter};
use crate::guest;
use crate::guest::kernel;
use crate::harness::args::RunArgs;
use crate::harness::cgroup::Cgroup;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use crate::harness::tables::mib;
use crate::peers::Allocator;
use serde_json::{Value, json};
use std::time::Duration;

/// The parts: `--only` takes their names.
pub(super) const PARTS: [&str; 4] = ["processes", "guests", "memhog-processes", "memhog-guests"];

/// (a) of one side.
pub struct FittedTenants {
    /// Tenants that did their work and idled, and the cgroup had not swapped.
    pub fitted: usize,
    /// Whether there could have been more.
    pub stopped_at_limit: bool,
    /// Bytes an idle tenant occupies.
    pub idle: Sample,
    /// The cgroup at the end, charged and swapped out, bytes.
    pub end: [u64; 2],
}

/// (b) of one side, a sample a tenant in their order.
#[derive(Default)]
pub struct Memhog {
    /// Seconds.
    pub turns: [Sample; 3],
    /// Bytes swapped out at the end.
    pub swapped: Sample,
}

/// One part of the experiment.
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// How large a tenant is, and the cgroup.
    pub tenant: u64,
    /// The cgroup's limit.
    pub limit: u64,
    /// Swap it may use.
    pub swap: u64,
    /// By side, in the order of the tables.
    pub counts: Vec<(String, Result<FittedTenants, String>)>,
    /// As `counts`.
    pub memhogs: Vec<(String, Result<Memhog, String>)>,
}

pub(super) fn place(part: &str, mib: u64) -> Result<TenantKind, String> {
    if !part.contains("guests") {
        return Ok(TenantKind::Process);
    }
    let (emulator, kernel) = (guest::emulator()?, kernel::find()?);
    println!("Guests: {emulator}, software emulation, Linux {}, {mib} MiB each.\n", kernel.release);
    Ok(TenantKind::Guest(mib, kernel))
}

pub(super) fn part(
    name: &'static str,
    place: &TenantKind,
    tenant: u64,
    allocators: &[Allocator],
    args: &RunArgs,
) -> Result<Part, String> {
    let memhog = name.starts_with("memhog");
    // The document's host is three guests wide in (a); in (b) two and a half, with swap of 4/15 of it.
    let limit = if memhog { tenant * 5 / 2 } else { tenant * 3 };
    let swap = if memhog { limit * 4 / 15 } else { tenant * 3 };
    let sides = sides(place, allocators);
    let (mut counts, mut memhogs) = (Vec::new(), Vec::new());
    if memhog {
        let rounds = args.rounds;
        let mut all: Vec<Result<Memhog, String>> = sides.iter().map(|_| Ok(Memhog::default())).collect();
        for (round, chosen) in rounds::of(rounds, sides.len()) {
            eprintln!("e5, {name}, round {} of {rounds}: {}", round + 1, sides[chosen].label);
            let ran = |runs: &mut Memhog| three(place, &sides[chosen], tenant, (limit, swap), runs);
            if let Err(why) = all[chosen].as_mut().map_err(|why| why.clone()).and_then(ran) {
                all[chosen] = Err(why);
            }
        }
        memhogs = sides.iter().map(|side| side.label.clone()).zip(all).collect();
    } else {
        for side in &sides {
            eprintln!("e5, {name}: {}", side.label);
            let result = count(place, side, tenant, (limit, swap));
            if let Ok(count) = &result {
                eprintln!(
                    "e5, {name}: {}: {} fitted, {} MiB each idle",
                    side.label,
                    count.fitted,
                    mib(count.idle.median())
                );
            }
            counts.push((side.label.clone(), result));
        }
    }
    Ok(Part { name, tenant, limit, swap, counts, memhogs })
}

/// Weir with its reporting on and off, and the peers; of guests each with and without the balloon's.
fn sides(place: &TenantKind, allocators: &[Allocator]) -> Vec<TenantRow> {
    let mut all = Vec::new();
    for allocator in allocators {
        let weir = allocator.name == crate::peers::WEIR;
        let settings: &[(&str, &'static [(&str, &str)])] =
            if weir { &[("", &[]), (", report=0", &[("WEIR_REPORT", "0")])] } else { &[("", &[])] };
        for (suffix, env) in settings {
            let label = format!("{}{suffix}", allocator.name);
            let side = TenantRow { label, allocator: allocator.clone(), env, hinting: true };
            match place {
                TenantKind::Process => all.push(side),
                TenantKind::Guest(..) => {
                    let on = TenantRow { label: format!("{}; balloon on", side.label), ..side.clone() };
                    let off = TenantRow { label: format!("{}; balloon off", side.label), hinting: false, ..side };
                    all.push(on);
                    if suffix.is_empty() && (weir || allocator.preload.is_none()) {
                        all.push(off);
                    }
                }
            }
        }
    }
    all
}

/// What a tenant's program asks for, of its memory: with the tables of blocks and the allocator's own loss it is at the
/// document's 4/5 at the peak (a), and as near the whole as a guest's kernel lets it be (b).
fn asked_for(place: &TenantKind, tenant: u64, memhog: bool) -> u64 {
    match (place, memhog) {
        (TenantKind::Process, false) => tenant * 68 / 100,
        (TenantKind::Guest(..), false) => tenant * 62 / 100,
        (TenantKind::Guest(..), true) => tenant * 66 / 100,
        (TenantKind::Process, true) => tenant * 85 / 100,
    }
}

fn patience(place: &TenantKind) -> (Duration, Duration) {
    match place {
        TenantKind::Process => (Duration::from_millis(1500), Duration::from_secs(10)),
        // The guest's kernel reports its free pages every 2 s, a part each time, once the program has given them back.
        TenantKind::Guest(..) => (Duration::from_secs(6), Duration::from_secs(40)),
    }
}

/// (a): one tenant after another until the cgroup swaps.
fn count(
    place: &TenantKind,
    side: &TenantRow,
    tenant: u64,
    (limit, swap): (u64, u64),
) -> Result<FittedTenants, String> {
    let most = if matches!(place, TenantKind::Process) { 16 } else { 10 };
    let landlord = TenantStarter::new(place, side)?;
    let cgroup = Cgroup::make("density", limit)?;
    cgroup.limit_swap(limit, swap)?;
    let mut tenants: Vec<Tenant> = Vec::new();
    let (mut fitted, mut stopped_at_limit) = (0, true);
    let (still, longest) = patience(place);
    for _ in 0..most {
        let mut new = landlord.start(&cgroup, asked_for(place, tenant, false))?;
        new.work()?;
        let swapped = cgroup.swapped()?;
        if swapped == 0 {
            new.settle(still, longest)?;
        }
        tenants.push(new);
        if swapped > 0 || cgroup.swapped()? > 0 {
            stopped_at_limit = false;
            break;
        }
        fitted += 1;
    }
    let idle = tenants.iter().map(|tenant| tenant.resident().map(|bytes| bytes as f64)).collect::<Result<_, _>>()?;
    Ok(FittedTenants { fitted, stopped_at_limit, idle, end: [cgroup.usage()?, cgroup.swapped()?] })
}

/// (b): three tenants are there, and one after another needs its whole memory.
fn three(
    place: &TenantKind,
    side: &TenantRow,
    tenant: u64,
    (limit, swap): (u64, u64),
    runs: &mut Memhog,
) -> Result<(), String> {
    let landlord = TenantStarter::new(place, side)?;
    let cgroup = Cgroup::make("memhog", limit)?;
    cgroup.limit_swap(limit, swap)?;
    let bytes = asked_for(place, tenant, true);
    let start = |_| landlord.start(&cgroup, bytes);
    let mut tenants = (0..3).map(start).collect::<Result<Vec<_>, _>>()?;
    let (still, longest) = patience(place);
    for (tenant, turn) in tenants.iter_mut().zip(&mut runs.turns) {
        turn.push(tenant.work()?);
        tenant.settle(still, longest)?;
    }
    runs.swapped.push(cgroup.swapped()? as f64);
    Ok(())
}

pub(super) fn as_json(parts: &[Part]) -> Value {
    let count = |count: &FittedTenants| {
        json!({ "fitted": count.fitted, "stopped_at_limit": count.stopped_at_limit, "idle": count.idle.json(),
                "end_charged": count.end[0], "end_swapped": count.end[1] })
    };
    let memhog =
        |runs: &Memhog| json!({ "turns_s": runs.turns.each_ref().map(Sample::json), "swapped": runs.swapped.json() });
    let all = |part: &Part| {
        let mut sides = serde_json::Map::new();
        for (label, result) in &part.counts {
            sides.insert(label.clone(), result.as_ref().map_or_else(|why| json!({ "failed": why }), count));
        }
        for (label, result) in &part.memhogs {
            sides.insert(label.clone(), result.as_ref().map_or_else(|why| json!({ "failed": why }), memhog));
        }
        json!({ "part": part.name, "tenant": part.tenant, "limit": part.limit, "swap": part.swap, "sides": sides })
    };
    json!({ "parts": parts.iter().map(all).collect::<Vec<_>>() })
}
