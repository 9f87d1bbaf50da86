//! One look, printed: what a person tries first.

use crate::machine::figures::Figures;
use crate::machine::look::{Looked, Machine};
use crate::machine::place::Place;
use crate::options::Options;
use anyhow::Result;
use serde::Serialize;
use std::collections::HashSet;
use std::time::Duration;
use weir_cli::survey::Cost;
use weir_cli::{printable_json, printable_line};
use weir_policy::limits::{Recommendation, Rules, Sample, Watched};

/// A group, bytes.
#[derive(Serialize)]
struct Line {
    /// Below the hierarchy's root, as far as it is text.
    cgroup: String,
    #[serde(flatten)]
    place: Option<Place>,
    charged: u64,
    droppable: u64,
    limit: Option<u64>,
    stalled_share: Option<f64>,
    #[serde(flatten)]
    figures: Figures,
    refault_share: f64,
    /// What its processes could do without, the cheapest first.
    cost_curve: Vec<Point>,
    needed: u64,
    recommended: Option<Recommendation>,
}

/// A point of a cost curve, of all bytes up to it.
#[derive(Serialize)]
struct Point {
    bytes: u64,
    /// Time to get them back, ns.
    once_ns: u64,
    /// Time lost in each second without them, ns.
    second_ns: u64,
}

/// All of it.
#[derive(Serialize)]
struct Found {
    groups: Vec<Line>,
    unreadable: usize,
    not_allowed: usize,
    unaccounted: usize,
}

/// The text of one look.
pub fn text(options: &Options) -> Result<String> {
    let look = Machine::at(&options.cgroup_root, options.bar())?.look(&HashSet::new());
    let rules = options.rules();
    let mut groups: Vec<Line> = look.groups.into_iter().map(|looked| line(looked, &rules)).collect();
    groups.sort_by_key(|line| std::cmp::Reverse(line.charged));
    let (unreadable, not_allowed, unaccounted) = (look.unreadable.0, look.not_allowed, look.unaccounted);
    let found = Found { groups, unreadable, not_allowed, unaccounted };
    if options.json { json(&found) } else { Ok(table(&found)) }
}

fn json(found: &Found) -> Result<String> {
    Ok(printable_json(found)?)
}

fn line(looked: Looked, rules: &Rules) -> Line {
    let mut watched = Watched::new(rules, Duration::ZERO);
    let (needed, charged) = (looked.needed(), looked.charge.charged);
    watched.note(Duration::ZERO, Sample { needed, charged, held: looked.charge.limit, stall: 0.0 });
    let point = |it: Cost| Point { bytes: it.bytes, once_ns: it.once_ns, second_ns: it.second_ns };
    Line {
        cost_curve: looked.costs().into_iter().map(point).collect(),
        cgroup: looked.group.path.to_string_lossy().into_owned(),
        place: looked.group.place,
        charged,
        droppable: looked.charge.droppable,
        limit: looked.charge.limit,
        stalled_share: looked.charge.stall,
        figures: looked.figures,
        refault_share: looked.figures.refault_share(),
        needed,
        recommended: watched.recommended(rules),
    }
}

fn table(found: &Found) -> String {
    let heads = ["CHARGED", "LIMIT", "NEEDED", "TARGET", "LIVE", "IDLE", "FRAGMENTED", "MERGED", "SPARE", "PROCESSES"];
    let row = |cells: [String; 10]| cells.map(|cell| format!("{cell:>11}")).concat();
    let mut text = row(heads.map(str::to_owned)) + "  CGROUP\n";
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / 1048576.0);
    for line in &found.groups {
        let it = &line.figures;
        let limit = line.limit.map_or("none".to_owned(), mib);
        let target = line.recommended.map_or("-".to_owned(), |it| mib(it.target));
        let [charged, needed, live, idle] = [line.charged, line.needed, it.live, it.idle].map(mib);
        let [fragmented, merged, spare] = [it.fragmented, it.merged, it.spare].map(mib);
        let processes = it.processes.to_string();
        let cells = [charged, limit, needed, target, live, idle, fragmented, merged, spare, processes];
        text += &format!("{}  /{}\n", row(cells), printable_line(&line.cgroup));
    }
    if found.groups.is_empty() && found.unaccounted == 0 {
        text += "no process with Weir was found: `weir run PROGRAM` starts one\n";
    }
    for (count, what) in [
        (found.unreadable, "cannot be read"),
        (found.not_allowed, "may not be looked into"),
        (found.unaccounted, "are in groups whose memory is not accounted"),
    ] {
        if count > 0 {
            text += &format!("processes that {what}: {count}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::groups::{Charge, Group};
    use crate::policy::relief::tests::process;
    use clap::Parser;
    use serde_json::Value;
    use weir_cli::survey::Process;

    #[test]
    fn processes_in_groups_that_are_not_accounted_are_told() {
        let of = |unaccounted| table(&Found { groups: Vec::new(), unreadable: 0, not_allowed: 0, unaccounted });
        let text = of(2);
        assert!(text.ends_with("processes that are in groups whose memory is not accounted: 2\n"), "{text}");
        assert!(!text.contains("no process") && of(0).contains("no process with Weir was found"), "{text}");
    }

    fn found(path: &str, processes: Vec<Process>) -> Found {
        let group = Group { path: path.into(), place: None, pids: Vec::new() };
        let looked = Looked { group, figures: Figures::default(), charge: Charge::default(), processes };
        let rules = Options::parse_from(["weir-agent"]).rules();
        Found { groups: vec![line(looked, &rules)], unreadable: 0, not_allowed: 0, unaccounted: 0 }
    }

    #[test]
    fn the_name_of_a_group_cannot_steer_a_terminal() {
        let found = found("a\u{1b}[2J\u{202e}\u{9b}é", Vec::new());
        assert!(table(&found).ends_with("  /a?[2J??é\n"), "{:?}", table(&found));
        let json: Value = serde_json::from_str(&json(&found).unwrap()).unwrap();
        assert_eq!(json["groups"][0]["cgroup"], "a?[2J??é");
    }

    #[test]
    fn the_curve_is_of_all_processes_of_the_group() {
        let found = found("a", vec![process(1, &[(10, 400), (50, 9000)]), process(2, &[(20, 300)])]);
        let json: Value = serde_json::from_str(&json(&found).unwrap()).unwrap();
        let curve = json["groups"][0]["cost_curve"].as_array().unwrap();
        let points: Vec<_> = curve.iter().map(|it| (it["bytes"].as_u64().unwrap() >> 20, &it["once_ns"])).collect();
        assert_eq!(points, [(20, &6000.into()), (30, &10_000.into()), (80, &460_000.into())]);
    }
}
