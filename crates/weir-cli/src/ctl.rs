//! `weir ctl`: a running process's settings, and what it is told to release. For programs, [`set_each`].

use crate::base::failure::{Failure, Kind};
use crate::base::parallel::each;
use crate::base::units::{exact_bytes, parse_duration};
use crate::base::{json, output};
use crate::command_line::{CtlAction, CtlOptions};
use crate::inspect::asked::figure;
use crate::inspect::control::{ASKING, AT_ONCE, Control, ONES_PATIENCE as PATIENCE, OTHERS_ARE_SLOW, apart};
use crate::inspect::page::Inspected;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_core::telemetry::tunables::{Effect, TABLE, Tunables, Unit, effect};

/// Changes a setting of each of these processes, as `weir ctl PID set NAME VALUE` does. They keep it. Those that do not answer are
/// waited for at the same time.
pub fn set_each(pids: &[i32], name: &str, value: u64) -> Vec<Result<(), Failure>> {
    let begun = Instant::now();
    let set = |&pid: &i32| {
        if begun.elapsed() >= ASKING {
            return Err(Failure::of(Kind::NotAnswering, format!("process {pid}: {OTHERS_ARE_SLOW}")));
        }
        let page = Inspected::narrow(pid).and_then(|it| it.page()).map_err(|why| why.of(pid))?;
        Control::connect_within(pid, &page, PATIENCE)?.ask(&format!("set {name} {value}")).map(drop)
    };
    apart(|| each(pids, AT_ONCE, set))
}

/// Carries the action out and prints the answer.
pub(crate) fn ctl(options: &CtlOptions) -> Result<i32, Failure> {
    let request = request(&options.action)?;
    let pid = options.pid;
    let (_, page) = Inspected::with_page(pid).map_err(|why| why.of(pid))?;
    let answer = Control::connect(pid, &page)?.ask(&request)?;
    let ended = ended_by(&answer).filter(|_| matches!(options.action, CtlAction::Set { .. }));
    let text = match options.json {
        true => json::pretty(&answer.lines().filter_map(figure).collect::<BTreeMap<_, _>>())?,
        false => answer.lines().map(|line| for_people(line) + "\n").collect(),
    };
    output::print(&text)?;
    if let Some(name) = ended {
        output::say(format_args!(
            "weir: process {pid} cannot be steered any more: only the program itself can change `{name}` again\n"
        ));
    }
    if let CtlAction::Set { name, .. } = &options.action
        && counts_at_start(name)
    {
        let variable = format!("WEIR_{}", name.to_uppercase());
        output::say(format_args!(
            "weir: process {pid} goes on as it was started: `{name}` counts from the next start, by {variable}\n"
        ));
    }
    Ok(0)
}

/// The setting that has closed the channel by its new value, if an answer has one.
fn ended_by(answer: &str) -> Option<String> {
    let ends = |(name, value): &(String, u64)| match name.as_str() {
        // Without a thread there is none that listens.
        "control" | "background" => *value == 0,
        _ => false,
    };
    answer.lines().filter_map(figure).find(ends).map(|(name, _)| name)
}

/// Whether a setting counts only as a process starts.
fn counts_at_start(name: &str) -> bool {
    TABLE.iter().any(|setting| setting.name == name && effect(setting) == Effect::AtStart)
}

/// The request as the process reads it.
fn request(action: &CtlAction) -> Result<String, Failure> {
    Ok(match action {
        CtlAction::Get { name: None } => "get".into(),
        CtlAction::Get { name: Some(name) } => format!("get {name}"),
        CtlAction::Set { name, value } => format!("set {name} {}", in_unit(name, value)?),
        CtlAction::Trim => "trim".into(),
        CtlAction::Drain => "drain".into(),
        CtlAction::Report => "report".into(),
    })
}

/// A value that the setting can have, as the process reads it. A page of the same version has the same settings.
fn in_unit(name: &str, value: &str) -> Result<String, Failure> {
    let value = number(name, value)?;
    Tunables::new().set(name, &value).map_err(|why| Failure::of(Kind::Usage, why.to_string()))?;
    Ok(value)
}

/// A value as [`for_people`] writes it, or a time with a unit, such as `5s`, as a number in the setting's own unit; all else as
/// it is.
fn number(name: &str, value: &str) -> Result<String, Failure> {
    let unit = TABLE.iter().find(|setting| setting.name == name).map(|setting| setting.unit);
    let value = match (unit, value.split_once(' ')) {
        // Bytes that have no larger unit are told twice.
        (Some(Unit::Bytes), Some((_, rest))) if rest.ends_with(" bytes)") => {
            rest.split_once('(').map_or(value, |(_, exact)| exact.trim_end_matches(" bytes)"))
        }
        (Some(Unit::Bytes), Some((number, unit))) => &format!("{number}{unit}"),
        (Some(unit), Some((number, name))) if unit.name() == name => number,
        _ => value,
    };
    let one = match unit {
        Some(Unit::Milliseconds) => Duration::from_millis(1),
        Some(Unit::Microseconds) => Duration::from_micros(1),
        _ => return Ok(value.to_owned()),
    };
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(value.to_owned());
    }
    let refused = |why| Failure::of(Kind::Usage, format!("{name}={value}: {why}"));
    let time = parse_duration(value).map_err(refused)?;
    if time.as_nanos() % one.as_nanos() != 0 {
        return Err(refused(format!(
            "the setting is in {}: write a multiple of that",
            humantime::format_duration(one)
        )));
    }
    Ok((time.as_nanos() / one.as_nanos()).to_string())
}

/// The line with the number in a unit that is read at a glance.
fn for_people(line: &str) -> String {
    let (Some((name, number)), Some(unit)) = (figure(line), line.split_whitespace().nth(2)) else {
        return line.to_owned();
    };
    match unit {
        "bytes" => format!("{name} {}", exact_bytes(number)),
        "ms" => format!("{name} {}", humantime::format_duration(Duration::from_millis(number))),
        "us" => format!("{name} {}", humantime::format_duration(Duration::from_micros(number))),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_unit_that_is_read_at_a_glance() {
        for (line, shown) in [
            ("limit 536870912 bytes", "limit 512 MiB"),
            ("released 1234567 bytes", "released 1.2 MiB (1234567 bytes)"),
            ("limit 0 bytes", "limit 0 B"),
            ("idle_ms 5000 ms", "idle_ms 5s"),
            ("psi_some_us 1500 us", "psi_some_us 1ms 500us"),
            ("headroom_percent 7 percent", "headroom_percent 7 percent"),
            ("of another version", "of another version"),
        ] {
            assert_eq!(for_people(line), shown);
        }
    }

    #[test]
    fn times_are_written_with_a_unit_or_in_that_of_the_setting() {
        for (name, value, sent) in [("idle_ms", "5s", "5000"), ("idle_ms", "50", "50"), ("limit", "64M", "64M")] {
            assert_eq!(in_unit(name, value).unwrap(), sent);
        }
        for value in ["x", "1us", "5 monkeys", "99999999999"] {
            assert_eq!(in_unit("idle_ms", value).map_err(|why| why.status), Err(2), "{value}");
        }
        assert_eq!(in_unit("limit", "lots").map_err(|why| why.status), Err(2));
    }

    #[test]
    fn what_get_prints_is_taken_by_set() {
        for setting in TABLE {
            for value in [setting.min, setting.default, setting.max, setting.max - 1, setting.min + 1] {
                let line = for_people(&format!("{} {value} {}", setting.name, setting.unit));
                let (name, printed) = line.split_once(' ').unwrap();
                let taken = Tunables::new();
                taken.set(name, in_unit(name, printed).unwrap_or_else(|why| panic!("{line}: {why}"))).unwrap();
                assert_eq!(taken.get(name), Ok(value), "{line}");
            }
        }
        for (name, wrong) in [("limit", "64 M 5"), ("limit", "(bytes)"), ("limit", "1 (x bytes)"), ("report", "1 ms")] {
            assert_eq!(in_unit(name, wrong).map_err(|why| why.status), Err(2), "{wrong}");
        }
    }

    #[test]
    fn what_counts_at_the_start_alone_is_known() {
        assert_eq!(["zone_cpus", "limit", "unknown"].map(counts_at_start), [true, false, false]);
    }

    #[test]
    fn what_ends_the_channel_is_known() {
        for (answer, name) in [
            ("control 0 bool\n", Some("control")),
            ("control 1 bool\n", None),
            ("background 0 bool\n", Some("background")),
            ("limit 0 bytes\n", None),
        ] {
            assert_eq!(ended_by(answer).as_deref(), name, "{answer}");
        }
    }
}
