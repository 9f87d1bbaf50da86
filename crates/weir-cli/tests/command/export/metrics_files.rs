//! The dashboard, the alert rules and the unit in docs/deploy fit what `weir export` prints.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use weir_testing::skip;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The names of all samples that the exporter has, by its own lines about them.
fn exported() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["export", "--once", "--caches"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let samples = types.flat_map(|(name, kind)| {
        let endings: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        endings.iter().map(move |ending| format!("{name}{ending}"))
    });
    let samples: BTreeSet<String> = samples.collect();
    assert!(samples.len() > 80, "{samples:?}");
    samples
}

/// The names of metrics in an expression.
fn used(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("weir_")).map(str::to_owned).collect()
}

/// All values of this key, wherever they are.
fn values<'a>(key: &str, within: &'a Value, found: &mut Vec<&'a str>) {
    match within {
        Value::Object(map) => map.iter().for_each(|(name, value)| match value {
            Value::String(text) if name == key => found.push(text),
            value => values(key, value, found),
        }),
        Value::Array(all) => all.iter().for_each(|value| values(key, value, found)),
        _ => {}
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana-dashboard.json")).expect("JSON")
}

/// The expressions of the dashboard's panels.
fn expressions(dashboard: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    values("expr", dashboard, &mut found);
    assert!(found.len() > 20, "{found:?}");
    found
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_alerts_exists() {
    let (exported, dashboard, alerts) = (exported(), dashboard(), read("alerts.yml"));
    let mut texts = expressions(&dashboard);
    values("query", &dashboard["templating"], &mut texts);
    let lines = alerts.lines().filter(|line| !line.trim_start().starts_with('#')).map(str::trim);
    // What is said to people names commands and units as well.
    let spoken = ["summary:", "description:"];
    texts.extend(lines.filter(|line| !spoken.iter().any(|word| line.starts_with(word))));
    let names: BTreeSet<String> = texts.into_iter().flat_map(used).collect();
    assert!(names.len() > 25, "{names:?}");
    let unknown: Vec<_> = names.difference(&exported).collect();
    assert!(unknown.is_empty(), "{unknown:?} are in docs/deploy, but not exported");
}

#[test]
fn panels_have_places_of_their_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for y in at("y")..at("y") + at("h") {
            (at("x")..at("x") + at("w")).for_each(|x| assert!(taken.insert((x, y)), "{} overlaps", panel["title"]));
        }
    }
}

/// Complaints of promtool about rules; none without it.
fn check(rules: &str) -> Option<Result<(), String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, rules).unwrap();
    let Ok(output) = Command::new("promtool").args(["check", "rules"]).arg(&file).output() else {
        skip!("no promtool, which would check the expressions (Debian has it in prometheus)");
        return None;
    };
    let said = || String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned();
    Some(if output.status.success() { Ok(()) } else { Err(said()) })
}

#[test]
#[ignore = "nightly: needs promtool"]
fn prometheus_reads_the_rules() {
    let rules = read("alerts.yml");
    let Some(checked) = check(&rules) else { return };
    assert_eq!(checked, Ok(()));
    assert!(check(&rules.replace("== 2", "=== 2")).unwrap().is_err());
}

/// An expression with what Grafana puts in the places of its own variables; those of the dashboard stay.
fn filled_in(expression: &str) -> String {
    let variables = [("$__rate_interval", "1m"), ("$__range", "1h")];
    variables.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value))
}

#[test]
fn expressions_have_variables_that_the_dashboard_or_grafana_has() {
    for expression in expressions(&dashboard()) {
        let written = filled_in(expression);
        let of_dashboard = ["job", "instance", "comm", "container"];
        let mut names = written.split('$').skip(1);
        assert!(names.all(|rest| of_dashboard.iter().any(|name| rest.starts_with(name))), "{expression}");
    }
}

#[test]
#[ignore = "nightly: needs promtool"]
fn prometheus_reads_every_expression_of_the_dashboard() {
    let dashboard = dashboard();
    let rule = |(i, expression)| {
        let expression = serde_json::to_string(&filled_in(expression)).unwrap();
        format!("      - record: weir:panel{i}\n        expr: {expression}\n")
    };
    let rules: String = expressions(&dashboard).into_iter().enumerate().map(rule).collect();
    let rules = format!("groups:\n  - name: panels\n    rules:\n{rules}");
    let Some(checked) = check(&rules) else { return };
    assert_eq!(checked, Ok(()));
    assert!(check(&rules.replacen("sum(", "sum((", 1)).unwrap().is_err());
}

#[test]
fn the_unit_and_the_scrape_agree_on_the_address() {
    let help = Command::new(env!("CARGO_BIN_EXE_weir")).args(["export", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, rest) = help.split_once("[default: ").unwrap();
    let address = rest.split(']').next().unwrap();
    assert!(read("weir-export.service").contains(&format!("weir export --listen {address}\n")), "{address}");
    assert!(read("prometheus.yml").contains(&format!("targets: [\"{address}\"]")), "{address}");
}

#[test]
fn the_unit_makes_the_directory_of_the_socket_that_the_document_names() {
    let deploy = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/DEPLOY.md")).unwrap();
    let (_, rest) = deploy.split_once("--listen unix:/run/").unwrap();
    let directory = rest.split('/').next().unwrap();
    assert!(read("weir-export.service").contains(&format!("\nRuntimeDirectory={directory}\n")), "{directory}");
}

#[test]
#[ignore = "nightly: needs systemd-analyze"]
fn systemd_reads_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let verify = |text: &str| {
        let unit = folder.path().join("weir-export.service");
        std::fs::write(&unit, text).unwrap();
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // It also complains about other units of the machine.
        Some(said.lines().filter(|line| line.contains("weir-export")).collect::<String>())
    };
    // The program need not be installed here.
    let text = read("weir-export.service").replace("/usr/bin/weir ", "/bin/true ");
    let Some(said) = verify(&text) else { return skip!("no systemd-analyze") };
    assert_eq!(said, "");
    assert!(verify(&text.replace("PrivateTmp", "PrivateTemp")).unwrap().contains("PrivateTemp"));
}
