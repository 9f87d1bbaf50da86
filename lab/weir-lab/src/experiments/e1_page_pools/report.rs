//! E1's tables.

use super::load::Size;
use super::measure::Done;
use crate::harness::nbd_servers::Kind;
use crate::harness::statistics::student;
use crate::harness::tables::{Table, mib, short, spread};
use serde_json::{Map, Value, json};

/// The document's figures by the squeeze duration, ms: pages in, pages out.
const DOCUMENT: [(&str, f64, f64); 4] =
    [("0", 76_672.0, 185_799.0), ("1", 707.0, 5_095.0), ("10", 867.0, 3_967.0), ("100", 362.0, 3_348.0)];

/// Prints them.
pub fn print(size: &Size, done: &[Done]) {
    println!(
        "{} volumes on one server, each with a client of libnbd's (fio) that reads bursts of {} x {} KiB with pauses of \
         {} ms;\na program that scans {} MiB in the same memory cgroup, of {} MiB; {} s. Medians (least..most); swap of \
         the whole machine. weir-nbd\nhas at most {} MiB of requests under way; qemu-nbd has one export, to which all its clients are connected.\n",
        size.volumes,
        size.depth,
        size.request >> 10,
        size.pause_ms,
        size.segment >> 20,
        size.limit >> 20,
        size.seconds,
        size.in_flight >> 20
    );
    println!("## weir-nbd, by the milliseconds that pools are squeezed (0: off)\n\n{}", durations(done));
    if let Some(verdict) = verdict(done) {
        println!("{verdict}\n");
    }
    println!(
        "## What the load is fitted to\n\nThe bursts come from the connection's own pool, and the pauses are just below the time after \
         which it is given up.\nSo here is weir-nbd with pools that keep nothing, and with pauses longer than that time.\n\n{}",
        fits(done)
    );
    println!("## The same load on each server\n\n{}", servers(done));
    for one in done {
        if let Some(why) = &one.failed {
            println!("{} failed: {why}\n", one.subject.name);
        }
    }
}

fn whole(value: f64) -> String {
    if value.is_nan() { "-".into() } else { format!("{value:.0}") }
}

/// How much lower `after` is than `before`.
fn lower(before: f64, after: f64) -> String {
    if before > 0.0 && after.is_finite() { format!("{:+.1} %", (after / before - 1.0) * 100.0) } else { "-".into() }
}

fn named<'a>(done: &'a [Done], name: &str) -> Option<&'a Done> {
    done.iter().find(|one| one.subject.name == name)
}

fn durations(done: &[Done]) -> Table {
    let mut table = Table::new([
        "duration, ms",
        "pswpin",
        "over off",
        "pswpout",
        "over off",
        "served, MiB/s",
        "server at the end, MiB",
        "document: in",
        "over off",
        "out",
        "over off",
    ]);
    let off = named(done, "0");
    for (name, pages_in, pages_out) in DOCUMENT {
        let Some(one) = named(done, name) else { continue };
        let over = |of: fn(&Done) -> f64| match off {
            Some(off) if name != "0" => lower(of(off), of(one)),
            _ => "-".into(),
        };
        let document = |at: f64, off: f64| if name == "0" { "-".into() } else { lower(off, at) };
        table.row([
            name.to_string(),
            spread(&one.pages_in, whole),
            over(|one| one.pages_in.median()),
            spread(&one.pages_out, whole),
            over(|one| one.pages_out.median()),
            short(one.served.median()),
            mib(one.held.median()),
            whole(pages_in),
            document(pages_in, DOCUMENT[0].1),
            whole(pages_out),
            document(pages_out, DOCUMENT[0].2),
        ]);
    }
    table
}

/// Off against the default, as the document's first table.
fn verdict(done: &[Done]) -> Option<String> {
    let (off, on) = (named(done, "0")?, named(done, "10")?);
    let pages_in = student(&on.pages_in, &off.pages_in);
    let pages_out = student(&on.pages_out, &off.pages_out);
    Some(format!("10 ms over off, means: in {pages_in}; out {pages_out}. Goal: both at least 98 % lower."))
}

/// weir-nbd as it is, and what the load is fitted to: bursts from one pool, and pauses just below the time after which pools
/// are given up.
fn fits(done: &[Done]) -> Table {
    let mut table = Table::new(["weir-nbd", "pswpin", "pswpout", "served, MiB/s", "server at the end, MiB"]);
    let rows = [
        ("0", "not squeezed"),
        ("10", "squeezed for 10 ms"),
        ("no-pools", "pools keep nothing"),
        ("0-long-pauses", "long pauses, not squeezed"),
        ("10-long-pauses", "long pauses, squeezed for 10 ms"),
    ];
    for (name, said) in rows {
        let Some(one) = named(done, name).filter(|one| one.served.len() > 0) else { continue };
        table.row([
            said.to_string(),
            spread(&one.pages_in, whole),
            spread(&one.pages_out, whole),
            short(one.served.median()),
            mib(one.held.median()),
        ]);
    }
    table
}

fn servers(done: &[Done]) -> Table {
    let mut table = Table::new(["server", "pswpin", "pswpout", "served, MiB/s", "server at the end, MiB"]);
    for one in done {
        let name = match one.subject.name {
            "0" => "weir-nbd, not squeezed",
            "10" => "weir-nbd",
            _ if one.subject.kind == Kind::Weir => continue,
            other => other,
        };
        table.row([
            name.to_string(),
            spread(&one.pages_in, whole),
            spread(&one.pages_out, whole),
            short(one.served.median()),
            mib(one.held.median()),
        ]);
    }
    table
}

/// Everything that was measured.
pub fn as_json(size: &Size, done: &[Done]) -> Value {
    let one = |one: &Done| {
        json!({ "pswpin": one.pages_in.json(), "pswpout": one.pages_out.json(), "served_mib_s": one.served.json(),
                "held": one.held.json(), "failed": one.failed })
    };
    let subjects: Map<_, _> = done.iter().map(|done| (done.subject.name.to_string(), one(done))).collect();
    // A peer that its cgroup was too small for is a result, and no failure of the experiment's.
    let failed = done.iter().filter(|one| one.subject.kind == Kind::Weir).find_map(|one| one.failed.clone());
    json!({ "volumes": size.volumes, "limit": size.limit, "segment": size.segment, "seconds": size.seconds,
            "subjects": subjects, "failed": failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_document() {
        let [(_, before_in, before_out), _, (_, after_in, after_out), _] = DOCUMENT;
        assert_eq!((lower(before_in, after_in), lower(before_out, after_out)), ("-98.9 %".into(), "-97.9 %".into()));
        assert_eq!(lower(0.0, 5.0), "-");
    }
}
