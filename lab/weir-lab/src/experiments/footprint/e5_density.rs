//! Density: tenants that each once needed four fifths of their memory, freed it, and idle. How many fit into a cgroup three of
//! them wide before it first swaps (of 16 processes or 10 guests at most)? And, as `memhog`, what does a need of the whole memory
//! take the first, second and third of three tenants?
//!
//! The tenants are processes of this machine (`processes`, `memhog-processes`), and guests under software emulation whose balloon
//! reports free pages or not. In a quick run the guests (`guests`, `memhog-guests`) run only if named. Seconds are of an
//! allocation of about a tenant's whole memory, written and freed. Root.

use crate::guest::kernel::GuestKernel;
use crate::guest::{self, Image, Machine};
use crate::harness::prelude::*;

const PARTS: [&str; 4] = ["processes", "guests", "memhog-processes", "memhog-guests"];

/// An allocator in a setting, and whether its guests report free pages.
struct Side(Allocator, bool);

impl Display for Side {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}{}", self.0, if self.1 { "" } else { "; balloon off" })
    }
}

/// A part: the size of a tenant, and the kernel of guests.
struct Part {
    tenant: u64,
    kernel: Option<GuestKernel>,
    is_memhog: bool,
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let mut parts = lab.chosen(&PARTS)?;
    if lab.args.only.is_empty() && lab.args.quick {
        parts.retain(|part| !part.contains("guests"));
    }
    let _lock = machine::lock()?;
    drop(Cgroup::make("trial", 64 << 20)?);
    let [process, guest] = lab.pick([512, 1024], [96, 512]).map(|mib: u64| mib << 20);
    let _swap = swap::make(&lab.args.swap_dir, 3 * lab.pick(guest, process))?;
    for name in parts {
        let is_guests = name.contains("guests");
        let kernel = if is_guests { guest::find().map(|(_, kernel)| Some(kernel)) } else { Ok(None) };
        match kernel {
            Err(why) => _ = lab.skips(name, vec![format!("{why:#}")]),
            Ok(kernel) => {
                let tenant = if is_guests { guest } else { process };
                run_part(lab, name, &Part { tenant, kernel, is_memhog: name.starts_with("memhog") });
            }
        }
    }
    Ok(())
}

fn run_part(lab: &mut Lab, name: &str, part: &Part) {
    let sides = sides(&lab.allocators, part.kernel.is_some());
    let limit = if part.is_memhog { part.tenant * 5 / 2 } else { part.tenant * 3 };
    let swap = if part.is_memhog { limit * 4 / 15 } else { limit };
    let mib = [part.tenant, limit, swap].map(|bytes| bytes >> 20);
    let case = format!("{name}: tenants of {} MiB in a cgroup of {} MiB, with {} MiB of swap", mib[0], mib[1], mib[2]);
    let (measures, rounds) = if part.is_memhog {
        let turns = ["first, s", "second, s", "third, s"].map(less).into_iter();
        (turns.chain([less("third/first"), less("swapped at the end, MiB").mib()]).collect(), lab.args.rounds)
    } else {
        let ends = ["charged at the end, MiB", "swapped, MiB"].map(|name| told(name).mib());
        let head = [more("before the first swap"), less("an idle one, MiB").mib()];
        (head.into_iter().chain(ends).collect(), 1)
    };
    let grid = Grid::measure(measures, rounds, &[case], &sides, |_, side| {
        let cgroup = Cgroup::make("density", limit)?;
        cgroup.limit_swap(limit, swap)?;
        let image = part.kernel.as_ref().map(|kernel| Image::build(kernel, &side.0, |_| Ok(()))).transpose()?;
        if part.is_memhog {
            memhog(part, side, image.as_ref(), &cgroup)
        } else {
            count(part, side, image.as_ref(), &cgroup)
        }
    });
    println!("{}", grid.by_case(Some(&lab.args.subject)));
    lab.keep(&grid);
}

fn sides(allocators: &[Allocator], are_guests: bool) -> Vec<Side> {
    let mut sides = Vec::new();
    for allocator in allocators {
        sides.push(Side(allocator.clone(), true));
        if allocator.name == WEIR {
            sides.push(Side(allocator.with("weir, report=0".into(), &[("WEIR_REPORT", "0")]), true));
        }
        if are_guests && (allocator.name == WEIR || allocator.preload.is_none()) {
            sides.push(Side(allocator.clone(), false));
        }
    }
    sides
}

/// A tenant, not yet at work, that is to need a part of its memory.
fn start(part: &Part, side: &Side, image: Option<&Image>, cgroup: &Cgroup) -> Result<Program> {
    let percent = match (image.is_some(), part.is_memhog) {
        (false, false) => 68,
        (true, false) => 62,
        (true, true) => 66,
        (false, true) => 85,
    };
    let words = format!("neighbour told=1 keep=0 mix=even-bytes bytes={}", part.tenant / 100 * percent);
    let command: Command = match image {
        Some(image) => image.command(Machine { mib: part.tenant >> 20, reporting: side.1, translations: 32 }, &words),
        None => load(&side.0, &words)?,
    };
    Program::first_phase(&side.to_string(), command, Some(cgroup))
}

/// Seconds of a tenant's need.
fn work(tenant: &mut Program) -> Result<f64> {
    let start = Instant::now();
    tenant.next_phase()?;
    tenant.next_phase()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Waits until a tenant's resident set has come to rest.
fn settle(tenant: &Program, is_guest: bool) -> Result<()> {
    let (still, limit) = if is_guest { (6.0, 40.0) } else { (1.5, 10.0) };
    let begin = Instant::now();
    let (mut last, mut since) = (tenant.memory()?.rss, begin);
    while since.elapsed().as_secs_f64() < still && begin.elapsed().as_secs_f64() < limit {
        std::thread::sleep(Duration::from_millis(250));
        let now = tenant.memory()?.rss;
        if (now - last).abs() > f64::from(1 << 20) {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

fn count(part: &Part, side: &Side, image: Option<&Image>, cgroup: &Cgroup) -> Result<Vec<f64>> {
    let most = if image.is_some() { 10 } else { 16 };
    let (mut tenants, mut fitted) = (Vec::new(), 0);
    while fitted < most && cgroup.swapped()? == 0 {
        let mut new = start(part, side, image, cgroup)?;
        work(&mut new)?;
        if cgroup.swapped()? == 0 {
            settle(&new, image.is_some())?;
        }
        tenants.push(new);
        fitted += u64::from(cgroup.swapped()? == 0);
    }
    let idle = tenants.iter().map(|tenant| Ok(tenant.memory()?.rss)).collect::<Result<Sample>>()?;
    Ok(vec![fitted as f64, idle.median(), cgroup.usage()? as f64, cgroup.swapped()? as f64])
}

fn memhog(part: &Part, side: &Side, image: Option<&Image>, cgroup: &Cgroup) -> Result<Vec<f64>> {
    let mut tenants = (0..3).map(|_| start(part, side, image, cgroup)).collect::<Result<Vec<_>>>()?;
    let mut figures = Vec::new();
    for tenant in &mut tenants {
        figures.push(work(tenant).context("a tenant")?);
        settle(tenant, image.is_some())?;
    }
    figures.push(figures[2] / figures[0]);
    figures.push(cgroup.swapped()? as f64);
    Ok(figures)
}
