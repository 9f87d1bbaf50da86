//! A process of several zones for one NUMA node.

use crate::common::{Kind, Mode, passes_with};

#[test]
fn threads_that_run_at_once_have_a_zone_each() {
    passes_with(Kind::C, "zones.c", &[], Mode::Plain, &[("WEIR_ZONE_CPUS", "1".into())]);
}
