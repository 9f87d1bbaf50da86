//! A picture of memory over time: process A of e8 under each allocator. It goes from A's peak over the frees at 0 s to 12 s of
//! idleness. There is a panel for each setting of huge pages. The option --svg FILE draws it; --only takes madvise, always.
//! Root for both settings.

use crate::harness::chart::{Panel, draw};
use crate::harness::prelude::*;

const STEP: Duration = Duration::from_millis(25);
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(12);

/// Seconds, and MiB resident.
type Curve = Vec<(f64, f64)>;

pub fn run(lab: &mut Lab) -> Result<()> {
    let _lock = machine::lock()?;
    let (bytes, allocators) = (lab.pick(1u64 << 30, 256 << 20), lab.allocators.clone());
    let modes = lab.chosen(&MODES)?;
    let mut panels = Vec::new();
    lab.for_huge_pages(&modes, |lab, mode| {
        let mut curves: Vec<(String, Curve)> = Vec::new();
        for allocator in &allocators {
            eprintln!("picture: huge pages {mode}, {allocator}");
            curves.push((allocator.name.clone(), curve(allocator, bytes, &lab.args.mix)?));
        }
        let row = |(name, curve): &(String, Curve)| {
            let at = |time: f64| curve.iter().rev().find(|point| point.0 <= time).map_or(0.0, |point| point.1);
            [name.clone()].into_iter().chain([0.0, 0.1, 1.0, 3.0, 12.0].map(at).map(short)).collect()
        };
        let head = ["resident, MiB", "at the peak", "0.1 s after the frees", "1 s", "3 s", "12 s"];
        println!("## Huge pages {mode}\n\n{}", table(head, curves.iter().map(row)));
        lab.note(mode, json!(curves));
        let title =
            format!("Huge pages {mode}: resident MiB of {}, 95 % freed at 0 s, then idle; by seconds", bytes >> 20);
        // A name with what is left.
        let named =
            |(name, curve): (String, Curve)| (format!("{name} {:.0}", curve.last().map_or(0.0, |it| it.1)), curve);
        panels.push(Panel { title, curves: curves.into_iter().map(named).collect() });
        Ok(())
    })?;
    lab.args.svg.as_ref().map_or(Ok(()), |path| draw(path, &panels, false, |seconds| format!("{seconds:.0}")))
}

fn curve(allocator: &Allocator, bytes: u64, mix: &str) -> Result<Curve> {
    let command = load(allocator, &format!("neighbour bytes={bytes} mix={mix}"))?;
    let mut a = Program::first_phase("A", command, None)?;
    let frees = Instant::now() + BEFORE;
    let (mut points, mut is_told) = (Vec::new(), false);
    while Instant::now() < frees + AFTER {
        if !is_told && Instant::now() >= frees {
            a.go_on()?;
            is_told = true;
        }
        let since = (Instant::now() + BEFORE - frees).as_secs_f64() - BEFORE.as_secs_f64();
        points.push((since, a.memory()?.rss / f64::from(1 << 20)));
        std::thread::sleep(STEP);
    }
    Ok(points)
}
