//! What came of it, as tables of Markdown.

use crate::fleet::{Fleet, Settings};
use crate::policy::Policy;
use crate::shapes::MIB;
use crate::simulate::{Outcome, nodes_needed, run};

/// Nodes that are plenty, for each that the fleet has.
const PLENTY: usize = 2;

/// A fleet, and the size of its nodes.
pub struct Measured {
    fleet: Fleet,
    node: f64,
    nodes: usize,
    most_in_use: f64,
}

impl Measured {
    /// Sizes nodes so that requests that stand just fit on `nodes` of them, in steps of 256 MiB.
    pub fn new(fleet: Fleet, nodes: usize) -> Self {
        let owner = crate::policy::all().remove(0);
        let all: f64 = fleet.members.iter().map(|member| member.highest * fleet.asked).sum();
        let mut node = (all / nodes as f64 / (256.0 * MIB)).ceil() * 256.0 * MIB;
        while run(&fleet, &owner, nodes, node).pending > 0 {
            node += 256.0 * MIB;
        }
        let most_in_use = fleet.most_in_use();
        Self { fleet, node, nodes, most_in_use }
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
            self.most_in_use / self.node,
        )
    }

    /// The main table: a row a policy, on the nodes that it needs.
    pub fn table(&self, policies: &[Policy]) -> String {
        let mut text = String::from(
            "| policy | nodes | asked for, GiB | resident, GiB | resizes | refused | taken back | deferred | evictions | OOM kills | work lost, ppm |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        let too_few = (self.most_in_use / self.node).ceil() as usize - 1;
        for policy in policies {
            let (nodes, outcome) = nodes_needed(&self.fleet, policy, self.node, too_few, PLENTY * self.nodes);
            text += &row(policy, nodes, &outcome);
        }
        text
    }
}

fn row(policy: &Policy, nodes: usize, outcome: &Outcome) -> String {
    let gib = |bytes: f64| bytes / 1024.0 / MIB;
    format!(
        "| {} | {nodes} | {:.0} | {:.0} | {} | {} | {} | {} | {} | {} | {:.1} |\n",
        policy.name,
        gib(outcome.asked),
        gib(outcome.used),
        outcome.resized,
        outcome.refused,
        outcome.taken_back,
        outcome.deferred,
        outcome.evicted,
        outcome.killed,
        1e6 * outcome.lost / outcome.work,
    )
}
