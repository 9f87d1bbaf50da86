//! What came of it, as tables of Markdown.

use crate::fleet::{Fleet, Settings};
use crate::policy::Policy;
use crate::shapes::MIB;
use crate::simulate::{Outcome, nodes_needed, recorded, run};
use std::fmt::Write;

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
        for policy in policies {
            let (nodes, outcome) = self.needed(policy);
            text += &row(policy, nodes, &outcome);
        }
        text
    }

    fn needed(&self, policy: &Policy) -> (usize, Outcome) {
        let too_few = (self.most_in_use / self.node).ceil() as usize - 1;
        nodes_needed(&self.fleet, policy, self.node, too_few, PLENTY * self.nodes)
    }

    /// What a policy does in the day's first steps on the nodes that it needs, for `fleet/control-plane/replay`. In lines: `nodes`, their
    /// number and bytes each; `pod`, request and limit; `resize`, the step, the pod's number, request, limit, and what is resident.
    pub fn record(&self, policy: &Policy, steps: u32) -> String {
        let (nodes, _) = self.needed(policy);
        let record = recorded(&self.fleet, policy, nodes, self.node);
        let mut text = format!("nodes {nodes} {:.0}\n", self.node);
        for it in &record.pods {
            // A string takes all that is written.
            let _ = writeln!(text, "pod {:.0} {:.0}", it.request, it.limit);
        }
        for it in record.resizes.iter().take_while(|it| it.step < steps) {
            let (step, pod, to) = (it.step, it.pod, it.to);
            let _ = writeln!(text, "resize {step} {pod} {:.0} {:.0} {:.0}", to.request, to.limit, it.usage);
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
