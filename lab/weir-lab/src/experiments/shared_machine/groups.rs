//! An idle heap in a group of cgroup v2 that comes to its limit: is it released? In a guest, as the machine's own groups may be
//! of v1.
//!
//! An idle process that keeps what it freed, and another that needs more than is left below their group's limit, without
//! swap. With reporting on the first is to release memory before the second is stalled; off is the control.

use crate::guest::{self, Image, Machine};
use crate::harness::prelude::*;

const MACHINE: Machine = Machine { mib: 1024, reporting: false, translations: 32 };

pub fn run(lab: &mut Lab) -> Result<()> {
    let (weir, (_, kernel)) = (lab.weir()?, guest::find()?);
    let sides = [weir.clone(), weir.with("off".into(), &[("WEIR_REPORT", "0")])];
    let mut all = Vec::new();
    for side in sides.iter().take(lab.pick(2, 1)) {
        let mut runs: Vec<Value> = Vec::new();
        for round in 0..lab.args.rounds {
            eprintln!("groups, round {}: reporting {side}", round + 1);
            let image = Image::build(&kernel, side, |_| Ok(()))?;
            let command = image.command(MACHINE, "groups");
            let finished = run_child(command, Duration::from_secs(400), "the guest")?;
            let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("the guest said '{line}'"));
            runs.extend(finished.output.lines().map(parse).collect::<Result<Vec<_>>>()?);
        }
        ensure!(!runs.is_empty(), "the guest said nothing");
        let mut cases: Vec<String> = runs.iter().filter_map(|run| run["case"].as_str().map(String::from)).collect();
        cases.truncate(cases.len() / lab.args.rounds as usize);
        let mut rows = Vec::new();
        for case in cases {
            let of = |key: &str| -> Sample {
                runs.iter().filter(|run| run["case"] == *case).filter_map(|run| run[key].as_f64()).collect()
            };
            if side.name != "off" && of("b_done").min().min(of("a_lives").min()) < 1.0 {
                lab.fail(format!(
                    "{case}: the idle heap released nothing, and one of the two was killed or waited 30 s"
                ));
            }
            let memory = ["a_before", "a_after"].map(|key| of(key).spread(mib));
            let rest = ["b_ms", "b_done", "a_lives", "events", "kills"].map(|key| of(key).spread(short));
            rows.push([case.clone()].into_iter().chain(memory).chain(rest).collect());
        }
        let head = "limit|idle heap before, MiB|after|the other's time, ms|done|alive|events|kills";
        println!("## Reporting {}\n\n{}", if side.name == "off" { "off" } else { "on" }, table(head.split('|'), rows));
        all.push(Value::from(runs));
    }
    lab.note("runs", all.into());
    Ok(())
}
