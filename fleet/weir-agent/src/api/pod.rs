//! A pod, as far as the agent goes by it.

use crate::policy::quantity;
use k8s_openapi::api::core::v1::{self, ResourceRequirements};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_policy::limits::Past;

/// Whether limits of this pod are changed: `off`, `down` or `both`.
pub const RESIZE: &str = "weir.dev/resize";
/// `true`: the processes of this pod merge sparse pages.
pub const MERGE: &str = "weir.dev/merge";
/// What containers held before the agent first changed it: JSON by container.
pub const LOWERED_FROM: &str = "weir.dev/lowered-from";
/// Static pods have it: what they are is in files of their node.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Conditions that tell of a resize which is not done: its spec was accepted, and the kubelet cannot or may not follow.
const RESIZING: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// The memory that a container holds, bytes; none: nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its request.
    pub request: Option<u64>,
    /// Its limit.
    pub limit: Option<u64>,
}

impl Held {
    fn of(resources: Option<&ResourceRequirements>) -> Self {
        let memory = |map: &Option<BTreeMap<String, _>>| {
            let quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity = map.as_ref()?.get("memory")?;
            quantity::bytes(&quantity.0)
        };
        resources.map_or(Self::default(), |it| Self { request: memory(&it.requests), limit: memory(&it.limits) })
    }

    /// What it may use: the limit, else the request.
    pub fn most(&self) -> Option<u64> {
        self.limit.or(self.request)
    }

    /// In whole MiB, as resizes are written.
    pub fn rounded(self) -> Self {
        let up = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(1 << 20) << 20);
        Self { request: up(self.request), limit: up(self.limit) }
    }
}

/// What the agent noted of a container: all that it has to know when it is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// What it held before the agent first lowered it.
    #[serde(flatten)]
    pub before: Held,
    /// What it might use when the agent last asked for a change.
    pub was: Option<u64>,
    /// What the agent asked for then. What is neither of these is another's change.
    pub asked: Option<u64>,
    /// The request that was asked for with its limit the last time. One that is neither this nor `kept` is another's to give back.
    pub requested: Option<u64>,
    /// The agent's request that it had then: it has it still where that change came to nothing.
    pub kept: Option<u64>,
    /// What the agent knew of it then.
    #[serde(default)]
    pub past: Past,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its ID, without the runtime's name; none before it runs.
    pub id: Option<String>,
    /// As it is wanted.
    pub wanted: Held,
    /// As the kubelet has made it; none: it does not say.
    pub actual: Option<Held>,
    /// Whether a change of memory would restart it.
    pub restarts: bool,
    /// Whether it is ready: before that it may be loading, and what it will need is not known.
    pub is_ready: bool,
    /// Whether the kernel killed it for memory when it ended last.
    pub was_killed: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Of the object; empty: the API has not said it.
    pub version: String,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub class: String,
    /// The annotation [`RESIZE`].
    pub resize: Option<String>,
    /// The annotation [`MERGE`].
    pub merge: bool,
    /// The annotation [`LOWERED_FROM`], by container.
    pub lowered_from: BTreeMap<String, Noted>,
    /// Its controller: kind and name. Pods of a Deployment or an Argo Rollout have that, not its ReplicaSet.
    pub owner: Option<(String, String)>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Init containers, which may be sidecars, and ephemeral ones: names by ID. What they hold is not changed.
    pub others: BTreeMap<String, String>,
    /// Whether its resources are not to be changed: it is static, it ends, or has ended.
    pub is_fixed: bool,
    /// Why the kubelet has not done what is wanted, if it says so.
    pub obstacle: Option<String>,
}

impl Pod {
    /// Of the API's object.
    pub fn of(pod: &v1::Pod) -> Self {
        let annotation = |name: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
        let status = pod.status.clone().unwrap_or_default();
        let statuses = status.container_statuses.unwrap_or_default();
        let others = [status.init_container_statuses, status.ephemeral_container_statuses];
        let others = others.into_iter().flatten().flatten().filter_map(|it| Some((id(&it)?, it.name)));
        let has_ended = status.phase.is_some_and(|phase| ["Succeeded", "Failed"].contains(&phase.as_str()));
        let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers).iter();
        let obstacle = status.conditions.unwrap_or_default().into_iter().find_map(|condition| {
            // What is said of an earlier spec is no word on this one.
            let seen = condition.observed_generation.zip(pod.metadata.generation);
            let is_of_this = seen.is_none_or(|(seen, now)| seen >= now);
            let is_stuck = RESIZING.contains(&condition.type_.as_str()) && condition.status == "True" && is_of_this;
            let reason = condition.reason.filter(|reason| is_stuck && !reason.is_empty())?;
            Some(format!("{reason}: {}", condition.message.unwrap_or_default()))
        });
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            version: pod.metadata.resource_version.clone().unwrap_or_default(),
            class: status.qos_class.unwrap_or_default(),
            resize: annotation(RESIZE),
            merge: annotation(MERGE).is_some_and(|value| value == "true"),
            lowered_from: annotation(LOWERED_FROM)
                .and_then(|json| serde_json::from_str(&json).ok())
                .unwrap_or_default(),
            owner: owner(pod),
            containers: containers
                .map(|it| container(it, statuses.iter().find(|status| status.name == it.name)))
                .collect(),
            others: others.collect(),
            is_fixed: annotation(MIRROR).is_some() || pod.metadata.deletion_timestamp.is_some() || has_ended,
            obstacle,
        }
    }

    /// The container of that name.
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// What a container held before the agent first changed it: as noted, unless somebody else has changed it since.
    pub fn before(&self, container: &Container) -> Held {
        let most = container.wanted.most();
        let noted = self.lowered_from.get(&container.name);
        let ours = noted.filter(|it| [it.before.most(), it.was, it.asked].contains(&most));
        ours.map_or(container.wanted, |noted| noted.before)
    }

    /// What an agent knew of a container that it changed, and a raise since. One up to what the container held before is not noted:
    /// it holds more than was asked for. One above that is noted before it is done.
    pub fn past(&self, container: &Container) -> Option<Past> {
        let Noted { was, asked, past, .. } = *self.lowered_from.get(&container.name)?;
        let now = container.wanted.most();
        let is_above = asked.is_some() && asked < now;
        let is_noted = was.is_some() && was < asked && asked == now;
        let is_raised = self.is_ours(container) && (is_above || is_noted);
        Some(Past { raises: past.raises.saturating_add(is_raised.into()), ..past })
    }

    /// What a container should hold so that it may use `most` bytes and needs `usual`, of the same class as now: Kubernetes
    /// refuses a resize that changes it. None: it cannot be resized.
    pub fn holding(&self, container: &Container, most: u64, usual: u64) -> Option<Held> {
        let Held { request, limit } = container.wanted;
        let held = match (self.class.as_str(), limit) {
            ("Guaranteed", Some(_)) if request == limit => Held { request: Some(most), limit: Some(most) }.rounded(),
            // A pod with resources of its own may be guaranteed by those.
            ("Burstable" | "Guaranteed", Some(_)) => {
                let request = self.roomless(container).or(request);
                let held = Held { request: request.map(|it| it.min(usual)), limit: Some(most) }.rounded();
                // Below the limit once both are rounded, and also where it was equal. No more than it was, either.
                Held { request: held.request.min(request).map(|it| below(it, held.limit)), ..held }
            }
            ("Burstable", None) if request.is_some() => Held { request: Some(most), limit: None }.rounded(),
            _ => return None,
        };
        (!container.restarts && !self.is_fixed).then_some(held)
    }
}

impl Pod {
    /// The request of a container that may be changed below its limit, of the same class as now.
    pub fn request_of(&self, container: &Container) -> Option<u64> {
        let is_free = self.class == "Burstable" && container.wanted.limit.is_some();
        container.wanted.request.filter(|_| is_free && !container.restarts && !self.is_fixed)
    }

    /// What a container should hold whose limit is raised to `most` bytes. The limit alone, where the request may be below it: for
    /// a higher request the node may have no room, and then the kubelet raises neither. A request that waits is withdrawn.
    pub fn raising(&self, container: &Container, most: u64) -> Option<Held> {
        let before = self.before(container);
        let is_before = before.most() == Some(most);
        let Some(request) = self.request_of(container) else {
            return if is_before { Some(before) } else { self.holding(container, most, u64::MAX) };
        };
        let limit = if is_before { most } else { most.div_ceil(1 << 20) << 20 };
        Some(Held { request: self.roomless(container).or(Some(request)), limit: Some(limit) })
    }

    /// Whether a container may use less than it did before the agent lowered it.
    pub fn is_lowered(&self, container: &Container) -> bool {
        container.wanted.most() < self.before(container).most()
    }

    /// What a container should hold that gets back the limit which the agent has lowered: because it was killed for memory, or the
    /// pod `is_off` and to be changed no more. It may be killed before there is a look at it, so nothing that it needs is waited for.
    pub fn restored(&self, container: &Container, is_off: bool) -> Option<Held> {
        let was_killed = container.was_killed && container.wanted.limit.is_some();
        let is_to_be = (was_killed || is_off) && self.is_lowered(container) && !container.restarts && !self.is_fixed;
        self.raising(container, self.before(container).most().filter(|_| is_to_be)?)
    }

    /// What a container should hold that has its limit back, and not yet the request that it had. None as long as a limit of the
    /// pod waits for its kubelet, which makes all of a pod's changes or none.
    pub fn given_back(&self, container: &Container) -> Option<Held> {
        let noted = self.lowered_from.get(&container.name).filter(|_| self.is_ours(container))?;
        let (before, wanted) = (noted.before, container.wanted);
        let is_there = |it: &Container| it.actual.and_then(|actual| actual.limit) == it.wanted.limit;
        let is_limit_back = wanted.limit >= before.limit && self.containers.iter().all(is_there);
        let is_agents = [noted.requested, noted.kept].contains(&wanted.request);
        let is_low = before.request > Some(self.request_of(container)?) && is_agents;
        (is_limit_back && is_low).then_some(Held { request: before.request, limit: wanted.limit })
    }

    /// Containers that the agent has raised and the kubelet has not, each with what it should hold instead. While a limit waits, no
    /// request does beside it that may be withdrawn: else neither would come. Nor does one wait that the kubelet will never follow.
    pub fn deferred(&self) -> Vec<(&Container, Held)> {
        let ours = || self.containers.iter().filter(|it| self.is_ours(it) && self.obstacle.is_some() && !self.is_fixed);
        let waits =
            |it: &Container| it.actual.is_some_and(|actual| actual.limit.is_some() && it.wanted.limit > actual.limit);
        // What lowers it takes all of that back.
        let falls = |it: &Container| it.actual.is_some_and(|actual| it.wanted.limit < actual.limit);
        let is_in_vain = self.is_infeasible() || ours().any(waits);
        let instead = |it: &Container| if is_in_vain { self.withdrawn(it) } else { it.wanted };
        let are_to_be = ours().filter(|it| waits(it) || self.roomless(it).is_some() && !falls(it));
        are_to_be.map(|it| (it, instead(it))).collect()
    }

    /// What a container holds without a request of the agent's that waits for room, or a raise that its node can never hold.
    fn withdrawn(&self, container: &Container) -> Held {
        if let Some(held) = self.outsized(container) {
            return held;
        }
        let request = self.roomless(container).filter(|_| self.request_of(container).is_some());
        Held { request: request.or(container.wanted.request), ..container.wanted }
    }

    /// What a container holds without a raise of the agent's above what it had before, where its node can never hold that. A limit that
    /// may be above its request takes no room of the node.
    fn outsized(&self, container: &Container) -> Option<Held> {
        let is_in_vain = self.is_infeasible() && self.is_ours(container) && self.request_of(container).is_none();
        let held = container.actual.filter(|_| is_in_vain && !container.restarts && !self.is_fixed)?;
        let most = [self.before(container), held].into_iter().max_by_key(Held::most)?;
        (most.most() < container.wanted.most()).then_some(most)
    }

    /// Whether an infeasible raise of a container is by itself too large for its node: nothing else that waits may be the reason.
    pub fn is_too_large(&self, container: &Container) -> bool {
        let is_of_memory = self.obstacle.as_deref().is_some_and(|why| !why.to_lowercase().contains("cpu"));
        is_of_memory && self.outsized(container).is_some() && !self.others_wait(container)
    }

    /// Whether a raise of a container that takes room of the node would be in vain: its kubelet makes all of its changes or none.
    pub fn is_held_up(&self, container: &Container) -> bool {
        self.is_infeasible() || self.others_wait(container)
    }

    /// Whether other containers of it do not hold what is wanted.
    fn others_wait(&self, container: &Container) -> bool {
        let mut others = self.containers.iter().filter(|it| it.name != container.name);
        others.any(|it| it.actual.is_some_and(|actual| actual != it.wanted))
    }

    /// The containers but one that have a request of the agent's which waits for room, and what they hold without it. Beside them no
    /// change of the pod's is made.
    pub fn without_waiting(&self, but: &str) -> impl Iterator<Item = (&str, Held)> {
        let others = self.containers.iter().filter(move |it| it.name != but && self.withdrawn(it) != it.wanted);
        others.map(|it| (it.name.as_str(), self.withdrawn(it)))
    }

    /// Whether its kubelet makes no change of it for now: it has said why, and that is nothing which the agent can withdraw.
    pub fn is_stuck(&self) -> bool {
        let is_withdrawable = self.containers.iter().any(|it| self.withdrawn(it) != it.wanted);
        let waits = |it: &Container| it.actual.is_some_and(|actual| actual != self.withdrawn(it));
        self.obstacle.is_some() && (!is_withdrawable || self.containers.iter().any(waits))
    }

    /// Whether the agent has asked for what a container may use, or has given it back.
    fn is_ours(&self, container: &Container) -> bool {
        let noted = self.lowered_from.get(&container.name);
        noted.is_some_and(|it| [it.before.most(), it.asked].contains(&container.wanted.most()))
    }

    /// The request that a container has for as long as the kubelet finds no room for the higher one that the agent asked for, or
    /// cannot change it at all: on a node with swap it can make none lower, either.
    fn roomless(&self, container: &Container) -> Option<u64> {
        let has = container.actual?.request.filter(|_| self.obstacle.is_some() && self.is_ours(container))?;
        let wanted = container.wanted.request?;
        (has < wanted || has != wanted && self.is_infeasible()).then_some(has)
    }

    /// Whether its kubelet has said that it will never do what is wanted.
    pub fn is_infeasible(&self) -> bool {
        self.obstacle.as_deref().is_some_and(is_infeasible)
    }

    /// What a container should hold that asks for `bytes` and keeps its limit: no more than `most`, and less than the limit.
    pub fn asking(&self, container: &Container, bytes: u64, most: u64) -> Option<Held> {
        self.request_of(container)?;
        let limit = container.wanted.limit?;
        let request = (bytes.min(most).div_ceil(1 << 20) << 20).min(most);
        Some(Held { request: Some(below(request, Some(limit))), limit: Some(limit) })
    }
}

/// Whether an obstacle is one that stays, whatever room there is.
pub fn is_infeasible(obstacle: &str) -> bool {
    obstacle.starts_with("Infeasible:")
}

/// A request that is a MiB below its limit at least: equal ones could make the pod a guaranteed one, which the API refuses.
fn below(request: u64, limit: Option<u64>) -> u64 {
    request.min(limit.map_or(u64::MAX, |limit| limit.saturating_sub(1 << 20)))
}

/// A container's ID, without the runtime's name.
fn id(status: &v1::ContainerStatus) -> Option<String> {
    let id = status.container_id.as_deref()?;
    Some(id.rsplit('/').next().unwrap_or(id).to_owned())
}

fn container(spec: &v1::Container, status: Option<&v1::ContainerStatus>) -> Container {
    let policies = spec.resize_policy.as_deref().unwrap_or_default();
    let states = status.map(|status| [status.state.as_ref(), status.last_state.as_ref()]).unwrap_or_default();
    let ended = states.into_iter().flatten().find_map(|state| state.terminated.as_ref());
    Container {
        name: spec.name.clone(),
        id: status.and_then(id),
        wanted: Held::of(spec.resources.as_ref()),
        actual: status.and_then(|status| status.resources.as_ref()).map(|resources| Held::of(Some(resources))),
        restarts: policies.iter().any(|it| it.resource_name == "memory" && it.restart_policy != "NotRequired"),
        is_ready: status.is_some_and(|status| status.ready),
        was_killed: ended.is_some_and(|end| end.reason.as_deref() == Some("OOMKilled")),
    }
}

/// What names a ReplicaSet's hash in its pods' labels, and what such a ReplicaSet belongs to.
const HASHES: [(&str, &str); 2] = [("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout")];

/// The controller. A ReplicaSet of a Deployment's is named by the Deployment and the hash in the pod's label.
fn owner(pod: &v1::Pod) -> Option<(String, String)> {
    let owners = pod.metadata.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let above = HASHES.into_iter().find_map(|(label, kind)| {
        let hash = pod.metadata.labels.as_ref()?.get(label)?;
        Some((kind.to_owned(), owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')?.to_owned()))
    });
    let own = || (owner.kind.clone(), owner.name.clone());
    Some(above.filter(|_| owner.kind == "ReplicaSet").unwrap_or_else(own))
}

#[cfg(test)]
mod tests;
