//! A process of several zones for one NUMA node: `WEIR_ZONE_CPUS`.

use crate::common::{Kind, Mode, compile, run, share, succeeded};

fn passes_with_a_zone_a_cpu(name: &str, arguments: &[&str]) {
    let Some(program) = compile(Kind::C, name) else { return };
    let output = run(&program, arguments, Mode::Plain, &[("WEIR_ZONE_CPUS", "1".into())]);
    succeeded(name, &output);
}

#[test]
fn threads_that_run_at_once_have_a_zone_each() {
    passes_with_a_zone_a_cpu("zones.c", &[]);
}

#[test]
fn blocks_keep_their_contents_whichever_zones_they_come_from() {
    passes_with_a_zone_a_cpu("stress.c", &["4", "1"]);
}

#[test]
fn a_child_has_all_zones() {
    passes_with_a_zone_a_cpu("forks.c", &[&share(50, Mode::Plain)]);
}
