//! One day of a fleet under one policy, on so many nodes.

use crate::cluster::Cluster;
use crate::fleet::{Fleet, Member};
use crate::load::{DAY, STEP};
use crate::policy::{Policy, Who};
use crate::shapes::resident;
use crate::vpa::Histogram;
use std::time::Duration;
use weir_policy::limits::{Rules, Sample, Watched, Wish};

/// The VPA's updater looks once a minute.
const UPDATER: u32 = 6;
/// `InPlaceOrRecreate` evicts what was deferred for 5 minutes, or has been under way for an hour.
const DEFERRED: u32 = 30;
const UNDER_WAY: u32 = 360;
/// The updater moves a pod within its bounds if that changes by more than this.
const CHANGE: f64 = 0.1;
/// The handshake lowers a limit once this part of it is free.
const FREE: f64 = 0.05;

/// What came of a day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Resizes that were done.
    pub resized: u64,
    /// Resizes down that the kubelet refused: usage was not below what was asked for.
    pub refused: u64,
    /// Handshakes that gave too little, so that the limit stayed.
    pub taken_back: u64,
    /// Resizes up that found no room on their node.
    pub deferred: u64,
    /// Pods that were evicted.
    pub evicted: u64,
    /// Containers that the kernel killed at their limit.
    pub killed: u64,
    /// Steps that pods waited for a node.
    pub pending: u64,
    /// Steps in which the pods of a node held more than it has.
    pub short: u64,
    /// Seconds of jobs that were lost in evictions and kills.
    pub lost: f64,
    /// Seconds of jobs in all.
    pub work: f64,
    /// What pods asked for, the mean of the day, in bytes.
    pub asked: f64,
    /// What was resident, the mean of the day, in bytes.
    pub used: f64,
    /// What was done, where that is to be known.
    pub record: Option<Record>,
}

/// What pods had at the day's begin, and each change of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// By number of the pod.
    pub pods: Vec<Target>,
    /// In the order in which they were done.
    pub resizes: Vec<Resize>,
}

/// A resize that was done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// When.
    pub step: u32,
    /// The number of the pod.
    pub pod: usize,
    /// What it has since.
    pub to: Target,
    /// What was resident then, in bytes.
    pub usage: f64,
}

impl Outcome {
    /// No pod waited and no node was short, and no more was evicted and killed than in `plenty`, with as many nodes as one likes.
    pub fn fits(&self, plenty: &Self) -> bool {
        self.pending == 0 && self.short == 0 && self.evicted <= plenty.evicted && self.killed <= plenty.killed
    }
}

/// What a pod should have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Its request, by which the scheduler places it.
    pub request: f64,
    /// Its limit, at which the kernel kills it.
    pub limit: f64,
}

/// A pod that runs.
struct Running<'a> {
    member: &'a Member,
    policy: &'a Policy,
    node: Option<usize>,
    /// What its owner has asked for.
    before: f64,
    request: f64,
    limit: f64,
    highest: f64,
    in_use_before: f64,
    histogram: Histogram,
    /// As the agent sees it.
    watched: Option<Watched>,
    /// What the API has taken, and the kubelet has had no room for.
    waiting: Option<Target>,
    /// The step of the first refusal or deferral of what is asked for now.
    since: Option<u32>,
    next: usize,
    ended: usize,
    jobs: u32,
    begun: f64,
    /// Jobs that began before this step were lost.
    from: u32,
}

/// Runs the day.
pub fn run(fleet: &Fleet, policy: &Policy, nodes: usize, node: f64) -> Outcome {
    run_while(fleet, policy, nodes, node, Outcome::default(), |_| true)
}

/// Runs the day, and records what is done.
pub fn recorded(fleet: &Fleet, policy: &Policy, nodes: usize, node: f64) -> Record {
    let outcome = Outcome { record: Some(Record::default()), ..Outcome::default() };
    run_while(fleet, policy, nodes, node, outcome, |_| true).record.unwrap_or_default()
}

/// Runs the day as long as what has come of it is worth going on.
fn run_while(
    fleet: &Fleet,
    policy: &Policy,
    nodes: usize,
    node: f64,
    mut outcome: Outcome,
    worth: impl Fn(&Outcome) -> bool,
) -> Outcome {
    let mut cluster = Cluster::new(nodes, node);
    let mut held = vec![0.0; nodes];
    let mut pods: Vec<Running> = fleet.members.iter().map(|member| Running::new(member, policy, fleet)).collect();
    if let Some(record) = &mut outcome.record {
        record.pods = pods.iter().map(Running::held).collect();
    }
    for step in 0..DAY {
        if !worth(&outcome) {
            break;
        }
        for (number, pod) in pods.iter_mut().enumerate() {
            if pod.node.is_none() {
                pod.node = cluster.place(pod.request);
            }
            let (resident, in_use) = pod.work(step, &mut outcome);
            let Some(node) = pod.node else {
                outcome.pending += 1;
                continue;
            };
            held[node] += resident;
            outcome.asked += pod.request / f64::from(DAY);
            outcome.used += resident / f64::from(DAY);
            if resident > pod.limit {
                outcome.killed += 1;
                pod.histogram.see_kill(fleet.day, resident);
                pod.restart(step, &mut outcome);
            }
            pod.histogram.see(fleet.day, resident);
            let before = pod.held();
            pod.manage(fleet.day, step, resident, in_use, &mut cluster, &mut outcome);
            if let Some(record) = outcome.record.as_mut().filter(|_| pod.held() != before) {
                record.resizes.push(Resize { step, pod: number, to: pod.held(), usage: resident });
            }
        }
        outcome.short += held.iter().filter(|&&bytes| bytes > node).count() as u64;
        held.fill(0.0);
    }
    outcome
}

impl<'a> Running<'a> {
    fn new(member: &'a Member, policy: &'a Policy, fleet: &Fleet) -> Self {
        let histogram = if policy.weir { &member.under_weir } else { &member.under_malloc }.clone();
        let mut pod = Self {
            member,
            policy,
            node: None,
            before: fleet.asked * member.highest,
            request: fleet.asked * member.highest,
            limit: 0.0,
            highest: member.highest,
            in_use_before: 0.0,
            histogram,
            watched: None,
            waiting: None,
            since: None,
            next: 0,
            ended: 0,
            jobs: 0,
            begun: 0.0,
            from: 0,
        };
        if matches!(policy.who, Who::Vpa) {
            pod.request = pod.histogram.recommend(f64::from(fleet.day)).target;
        }
        pod.limit = pod.request;
        if let Who::Agent(rules) = policy.who {
            pod.remember(&rules);
        }
        pod
    }

    fn held(&self) -> Target {
        Target { request: self.request, limit: self.limit }
    }

    /// The agent has seen the day before, on nodes with room: what the pod has at its end.
    fn remember(&mut self, rules: &Rules) {
        self.watched = Some(Watched::new(rules, Duration::ZERO));
        for (step, &jobs) in self.member.yesterday.iter().enumerate() {
            let live = self.member.pod.live(jobs);
            let usage = resident(live, self.highest, self.leaves());
            if let Some(target) = self.look(rules, step as u32, usage, live) {
                (self.request, self.limit) = (target.request, target.limit);
            }
        }
    }

    /// What the agent wants to change after a look, in steps since it began.
    fn look(&mut self, rules: &Rules, step: u32, usage: f64, in_use: f64) -> Option<Target> {
        let before = self.before as u64;
        let needed = if self.policy.by_use { in_use } else { usage } as u64;
        let held = self.limit as u64;
        let watched = self.watched.as_mut()?;
        watched.note(
            Duration::from_secs_f64(f64::from(step + 1) * STEP),
            Sample { needed, charged: usage as u64, held: Some(held), stall: 0.0 },
        );
        let request = rules.requests.map(|_| self.request as u64);
        let wish = watched.wish(rules, held, request, before, false)?;
        let target = match wish {
            Wish::Lower(to) | Wish::Raise(to) if request.is_none() => Target { request: to as f64, limit: to as f64 },
            Wish::Lower(to) => {
                let asks = watched.asks(rules, to).map_or(self.request, |bytes| bytes as f64);
                Target { request: asks.min(self.request), limit: to as f64 }
            }
            Wish::Raise(to) => Target { request: self.request, limit: to as f64 },
            Wish::Request(to) => Target { request: to.min(before) as f64, limit: self.limit },
        };
        watched.changed(wish);
        Some(target)
    }

    fn leaves(&self) -> f64 {
        let shape = &self.member.pod.shape;
        if self.policy.weir { shape.weir_leaves } else { shape.malloc_leaves }
    }

    /// Jobs begin and end. What is resident, and what is in use.
    fn work(&mut self, step: u32, outcome: &mut Outcome) -> (f64, f64) {
        while let Some(&job) = self.member.ending.get(self.ended)
            && job.end <= step
        {
            self.ended += 1;
            if job.begin >= self.from {
                self.jobs -= 1;
                self.begun -= f64::from(job.begin);
            }
        }
        while let Some(&job) = self.member.jobs.get(self.next)
            && job.begin <= step
        {
            self.next += 1;
            outcome.work += f64::from(job.end.min(DAY) - job.begin) * STEP;
            if self.node.is_some() && job.begin >= self.from {
                self.jobs += 1;
                self.begun += f64::from(job.begin);
            } else {
                outcome.lost += f64::from(job.end.min(DAY) - job.begin) * STEP;
                self.from = step + 1;
            }
        }
        let live = self.member.pod.live(self.jobs);
        self.highest = self.highest.max(live);
        let in_use = live.max(self.in_use_before); // what was freed in this step is only just on its way back
        self.in_use_before = live;
        (resident(live, self.highest, self.leaves()), in_use)
    }

    /// The process is gone, with its heap and the jobs that it was at.
    fn restart(&mut self, step: u32, outcome: &mut Outcome) {
        outcome.lost += (f64::from(self.jobs) * f64::from(step + 1) - self.begun) * STEP;
        (self.jobs, self.begun, self.from) = (0, 0.0, step + 1);
        self.highest = self.member.pod.live(0);
    }

    /// The agent looks, and the API takes what it wants; a kubelet without room does it once there is some.
    fn follow(
        &mut self,
        rules: &Rules,
        step: u32,
        usage: f64,
        in_use: f64,
        cluster: &mut Cluster,
        outcome: &mut Outcome,
    ) {
        let wanted = self.look(rules, DAY + step, usage, in_use).or(self.waiting.take());
        if let Some(target) = wanted
            && !self.resize(target, usage, cluster, outcome)
            && (target.request > self.request || target.limit > self.limit)
        {
            self.waiting = Some(target);
        }
    }

    fn manage(&mut self, day: u32, step: u32, usage: f64, in_use: f64, cluster: &mut Cluster, outcome: &mut Outcome) {
        let target = match self.policy.who {
            Who::Owner => return,
            Who::Vpa => {
                if !step.is_multiple_of(UPDATER) {
                    return;
                }
                let advice = self.histogram.recommend(f64::from(day) + f64::from(step) / f64::from(DAY));
                let outside = self.request < advice.lower || self.request > advice.upper;
                if !outside && (advice.target / self.request - 1.0).abs() <= CHANGE {
                    self.since = None;
                    return;
                }
                Target { request: advice.target, limit: advice.target }
            }
            Who::Agent(rules) => return self.follow(&rules, step, usage, in_use, cluster, outcome),
        };
        let raised = target.request > self.request;
        if self.resize(target, usage, cluster, outcome) {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(step);
        let patience = if raised { DEFERRED } else { UNDER_WAY };
        if step - since >= patience {
            outcome.evicted += 1;
            self.restart(step, outcome);
            cluster.remove(self.node.take().expect("it runs"), self.request);
            (self.request, self.limit, self.since) = (target.request, target.limit, None);
        }
    }

    /// Asks the kubelet for it; whether it was done.
    fn resize(&mut self, target: Target, usage: f64, cluster: &mut Cluster, outcome: &mut Outcome) -> bool {
        if target.limit < self.limit {
            if self.policy.handshake && usage > target.limit * (1.0 - FREE) {
                outcome.taken_back += 1;
                return false;
            }
            if usage >= target.limit {
                outcome.refused += 1;
                return false;
            }
        }
        if !cluster.resize(self.node.expect("it runs"), self.request, target.request) {
            outcome.deferred += 1;
            return false;
        }
        (self.request, self.limit) = (target.request, target.limit);
        outcome.resized += 1;
        true
    }
}

/// The fewest nodes that do as well as `most` do, and what comes of the day on them. `least` nodes are known to be too few.
pub fn nodes_needed(fleet: &Fleet, policy: &Policy, node: f64, least: usize, most: usize) -> (usize, Outcome) {
    let plenty = run(fleet, policy, most, node);
    let (mut too_few, mut enough, mut found) = (least, most, plenty.clone());
    while enough - too_few > 1 {
        let nodes = (too_few + enough) / 2;
        let outcome = run_while(fleet, policy, nodes, node, Outcome::default(), |so_far| so_far.fits(&plenty));
        if outcome.fits(&plenty) {
            (enough, found) = (nodes, outcome);
        } else {
            too_few = nodes;
        }
    }
    (enough, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet;
    use crate::policy;
    use crate::shapes::MIB;
    use crate::traces::{Curves, POINTS};

    const NODE: f64 = 32.0 * 1024.0 * MIB;

    fn fleet(seed: u64) -> Fleet {
        let flat = Curves::from_days(&[[1.0; POINTS]]);
        let settings = fleet::Settings { pods: 24, seed, learned: 2, jobs: [1.0, 30.0] };
        Fleet::from_curves(&[flat.clone(), flat.clone(), flat], 0.55, &settings)
    }

    #[test]
    fn a_seed_gives_the_same_day_and_another_seed_another() {
        let policy = &policy::all()[5];
        assert_eq!(run(&fleet(1), policy, 8, NODE), run(&fleet(1), policy, 8, NODE));
        assert_ne!(run(&fleet(1), policy, 8, NODE), run(&fleet(2), policy, 8, NODE));
    }

    #[test]
    fn the_same_jobs_come_whatever_the_policy_and_none_is_lost_where_none_is_killed() {
        let fleet = fleet(1);
        let outcomes: Vec<Outcome> = policy::all().iter().map(|policy| run(&fleet, policy, 24, NODE)).collect();
        for outcome in &outcomes {
            assert_eq!(outcome.work, outcomes[0].work);
            assert_eq!(outcome.lost > 0.0, outcome.killed + outcome.evicted > 0);
            assert!(outcome.fits(outcome));
        }
        assert_eq!((outcomes[0].resized, outcomes[0].refused), (0, 0));
    }

    #[test]
    fn malloc_without_the_handshake_is_refused_and_weir_with_it_is_not() {
        let fleet = fleet(1);
        let [without, with] = [4, 5].map(|row| run(&fleet, &policy::all()[row], 24, NODE));
        assert!(without.refused > 0);
        assert!(with.refused == 0 && with.resized > 0);
        assert!(with.used < without.used && with.killed <= without.killed);
    }

    #[test]
    fn one_node_less_than_needed_is_too_few() {
        let fleet = fleet(1);
        for row in [0, 1, 8] {
            let policy = &policy::all()[row];
            let (needed, outcome) = nodes_needed(&fleet, policy, NODE, 0, 24);
            let plenty = run(&fleet, policy, 24, NODE);
            assert!(needed > 1 && outcome.fits(&plenty) && outcome == run(&fleet, policy, needed, NODE));
            assert!(!run(&fleet, policy, needed - 1, NODE).fits(&plenty));
        }
    }

    #[test]
    fn each_change_is_recorded() {
        let (fleet, policy) = (fleet(1), &policy::all()[8]);
        let (record, outcome) = (recorded(&fleet, policy, 24, NODE), run(&fleet, policy, 24, NODE));
        assert_eq!((record.pods.len(), record.resizes.len() as u64), (24, outcome.resized));
        assert!(record.resizes.iter().all(|it| it.to.request <= it.to.limit && it.usage < it.to.limit));
    }

    #[test]
    fn pods_without_a_node_lose_what_comes() {
        let outcome = run(&fleet(1), &policy::all()[0], 0, NODE);
        assert_eq!(outcome.pending, 24 * u64::from(DAY));
        assert_eq!(outcome.lost, outcome.work);
    }
}
