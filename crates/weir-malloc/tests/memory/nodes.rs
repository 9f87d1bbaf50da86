//! Memory by NUMA node. `.ci/arm64-guest nodes` runs the program on two.

use crate::common::{Kind, Mode, passes};

#[test]
fn what_a_thread_allocates_lies_on_its_node() {
    passes(Kind::C, "nodes.c", &[], Mode::Plain);
}
