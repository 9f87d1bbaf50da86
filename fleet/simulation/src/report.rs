//! What came of it, as tables of Markdown.

use crate::fleet::{Fleet, Settings};
use crate::policy::Policy;
use crate::shapes::MIB;
use crate::simulate::{Outcome, nodes_needed, run};

/// Nodes of which a policy is tried at most: more than the fleet has, so that a worse one is seen as well.
const MOST: usize = 120;

/// A fleet, and the size of its nodes.
pub struct Measured {
    fleet: Fleet,
    node: f64,
    nodes: usize,
}

impl Measured {
    /// Sizes nodes so that requests that stand just fit on `nodes` of them, in steps of 256 MiB.
    pub fn new(fleet: Fleet, nodes: usize) -> Self {
        let owner = crate::policy::all().remove(0);
        let all: f64 = fleet.members.iter().map(|member| member.highest * fleet.asked).sum();
        let mut node = (all / nodes as f64 / (256.0 * MIB)).ceil() * 256.0 * MIB;
        while !run(&fleet, &owner, nodes, node).fits() {
            node += 256.0 * MIB;
        }
        Self { fleet, node, nodes }
    }

    /// What the fleet is.
    pub fn describe(&self, settings: &Settings) -> String {
        let mean = self.fleet.members.iter().map(|member| member.pod.size).sum::<f64>() / settings.pods as f64 / MIB;
        format!(
            "{} pods of {mean:.0} MiB on average, seed {}; nodes of {:.2} GiB, of which requests that stand need {}. Owners ask for \
             {:.2} times the most that a pod used in {} days. In use at once are at most {:.2} nodes' memory.",
            settings.pods,
            settings.seed,
            self.node / 1024.0 / MIB,
            self.nodes,
            self.fleet.asked,
            settings.learned,
            self.fleet.most_in_use() / self.node,
        )
    }

    /// The main table: a row a policy, on the nodes that it needs.
    pub fn table(&self, policies: &[Policy]) -> String {
        let mut text = String::from(
            "| policy | nodes | asked for, GiB | resident, GiB | resizes | refused | taken back | evictions | OOM kills | work lost, ppm |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for policy in policies {
            let needed = nodes_needed(&self.fleet, policy, self.node, MOST);
            text += &row(policy, needed, &run(&self.fleet, policy, needed.unwrap_or(MOST), self.node));
        }
        text
    }
}

fn row(policy: &Policy, needed: Option<usize>, outcome: &Outcome) -> String {
    let nodes = needed.map_or(format!("over {MOST}"), |nodes| nodes.to_string());
    let gib = |bytes: f64| bytes / 1024.0 / MIB;
    format!(
        "| {} | {nodes} | {:.0} | {:.0} | {} | {} | {} | {} | {} | {:.1} |\n",
        policy.name,
        gib(outcome.asked),
        gib(outcome.used),
        outcome.resized,
        outcome.refused,
        outcome.taken_back,
        outcome.evicted,
        outcome.killed,
        1e6 * outcome.lost / outcome.work,
    )
}
