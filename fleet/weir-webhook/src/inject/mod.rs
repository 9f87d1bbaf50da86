//! What is done to a pod: a function of the pod, of whether its namespace asks, and of the configuration.

mod container;
pub mod library;
mod os;
mod patch;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::json;

use container::Plan;
use library::{INIT_CONTAINER, Library, VOLUME};
use patch::{List, Place};

/// The label of a pod or a namespace that asks: `"true"`. A pod's own label, `"false"` too, wins over its namespace's.
pub const LABEL: &str = "weir.dev/inject";
/// The annotation that says what was done, or why not.
pub const EXPLANATION: &str = "weir.dev/injected";
/// The annotation of a pod whose Python's objects are to come from malloc: `"true"`.
pub const PYTHON_MALLOC: &str = "weir.dev/python-malloc";
/// The annotation that names volumes whose loss harms nobody, separated by commas. Without it cluster-autoscaler keeps a node
/// because of the pod's `emptyDir`.
const EVICTABLE: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";

/// No node runs a pod of more. Each takes some KiB of patch.
const MOST_CONTAINERS: usize = 500;

/// Bytes of a pod's annotations at most, with their names: the API refuses a pod with more.
const ANNOTATIONS: usize = 256 << 10;
/// Bytes of an explanation at most. The API refuses an event with a longer note.
const LONGEST: usize = 1024;

/// What became of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Containers of it preload Weir from now on.
    Injected,
    /// It did not ask, or all is done already.
    Unchanged,
    /// It asked, and cannot have it. The explanation says why.
    Left,
}

/// What is to be done to a pod.
#[derive(Debug)]
pub struct Mutation {
    /// The operations; none if nothing is to be done.
    pub patch: Patch,
    /// What became of it.
    pub outcome: Outcome,
    /// One line for a person, of 1 KiB at most, unless the pod did not ask.
    pub explanation: Option<String>,
}

/// What is to be done to a pod that is being made. Done to the result again, it does nothing.
pub fn mutate(pod: &Pod, namespace_asks: bool, library: &Library) -> Mutation {
    let nothing = Mutation { patch: Patch(Vec::new()), outcome: Outcome::Unchanged, explanation: None };
    let Some(spec) = &pod.spec else { return nothing };
    // A mirror of what a kubelet runs from a file: a change here would not be one there.
    if !asks(pod, namespace_asks) || annotation(pod, "kubernetes.io/config.mirror").is_some() {
        return nothing;
    }
    if let Some(reason) = refuses(spec) {
        return explained(pod, Outcome::Left, Vec::new(), format!("left as it is: {reason}"), None);
    }
    let plans = Plans::of(pod, spec);
    if plans.on_weir.is_empty() {
        return explained(pod, Outcome::Left, Vec::new(), format!("left as it is: {}", plans.left.join("; ")), None);
    }
    let mut operations = plans.operations;
    operations.extend(bring(spec, library));
    let mut explanation = format!("preloaded in {}", plans.on_weir.join(", "));
    if !plans.left.is_empty() {
        explanation = format!("{explanation}; left: {}", plans.left.join("; "));
    }
    let evictable = (held(spec, library) == Held::Directory).then(|| evictable(pod));
    explained(pod, Outcome::Injected, operations, explanation, evictable)
}

fn asks(pod: &Pod, namespace_asks: bool) -> bool {
    match pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL)) {
        Some(own) => own == "true",
        None => namespace_asks,
    }
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a String> {
    pod.metadata.annotations.as_ref()?.get(name)
}

/// Why a whole pod cannot have it.
fn refuses(spec: &PodSpec) -> Option<&'static str> {
    if !os::is_linux(spec) {
        return Some("it is not for Linux");
    }
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    // With the one that a first call has added it may have one more.
    if all.filter(|container| container.name != INIT_CONTAINER).count() > MOST_CONTAINERS {
        return Some("it has more than 500 containers");
    }
    let volume = volume(spec);
    if volume == Some(Held::ByAnother) {
        return Some("it has a volume weir-library of its own");
    }
    let of_our_name = |container: &Container| container.name == INIT_CONTAINER;
    let init = spec.init_containers.iter().flatten().any(of_our_name);
    if spec.containers.iter().any(of_our_name) || (init && volume.is_none()) {
        return Some("it has a container weir-library of its own");
    }
    None
}

/// What the volume of the name is.
#[derive(Clone, Copy, PartialEq)]
enum Held {
    Directory,
    Image,
    ByAnother,
}

fn volume(spec: &PodSpec) -> Option<Held> {
    let volume = spec.volumes.iter().flatten().find(|volume| volume.name == VOLUME)?;
    Some(match (&volume.empty_dir, &volume.image) {
        (Some(_), _) => Held::Directory,
        (_, Some(_)) => Held::Image,
        _ => Held::ByAnother,
    })
}

/// Where the init container is, if it is there.
fn bringer(spec: &PodSpec) -> Option<usize> {
    spec.init_containers.iter().flatten().position(|container| container.name == INIT_CONTAINER)
}

/// What is done to all containers of a pod.
#[derive(Default)]
struct Plans {
    operations: Vec<PatchOperation>,
    on_weir: Vec<String>,
    left: Vec<String>,
}

impl Plans {
    fn of(pod: &Pod, spec: &PodSpec) -> Self {
        let python = annotation(pod, PYTHON_MALLOC).is_some_and(|value| value == "true");
        let mut plans = Self::default();
        let bringer = bringer(spec);
        let at = |list: &str, index: usize| Place::new(&["spec", list]).then(index);
        for (index, container) in spec.init_containers.iter().flatten().enumerate() {
            if bringer == Some(index) {
                continue;
            }
            if bringer.is_some_and(|bringer| index < bringer) {
                plans.left.push(format!("{} (it starts before the library is there)", container.name));
                continue;
            }
            plans.add(container, container::plan(container, &at("initContainers", index), python));
        }
        for (index, container) in spec.containers.iter().enumerate() {
            plans.add(container, container::plan(container, &at("containers", index), python));
        }
        plans
    }

    fn add(&mut self, container: &Container, plan: Plan) {
        match plan {
            Plan::Preload(operations) => {
                self.operations.extend(operations);
                self.on_weir.push(container.name.clone());
            }
            Plan::Leave(reason) => self.left.push(format!("{} ({reason})", container.name)),
        }
    }
}

/// What the volume is, or will be.
fn held(spec: &PodSpec, library: &Library) -> Held {
    volume(spec).unwrap_or(match library.way {
        library::Way::InitContainer => Held::Directory,
        library::Way::ImageVolume => Held::Image,
    })
}

/// The volume, and what fills it: those of the two that are not there yet. It comes after what was done to containers, as
/// it moves the init containers by one.
fn bring(spec: &PodSpec, library: &Library) -> Vec<PatchOperation> {
    let mut operations = Vec::new();
    if volume(spec).is_none() {
        operations.push(List::new(Place::new(&["spec", "volumes"]), &spec.volumes).push(library.volume()));
    }
    if held(spec, library) == Held::Directory && bringer(spec).is_none() {
        let mut list = List::new(Place::new(&["spec", "initContainers"]), &spec.init_containers);
        operations.push(list.push_front(library.init_container(spec)));
    }
    operations
}

/// The volumes that cluster-autoscaler may lose, with this one.
fn evictable(pod: &Pod) -> String {
    match annotation(pod, EVICTABLE).map(String::as_str) {
        None | Some("") => VOLUME.to_owned(),
        Some(named) if named.split(',').any(|name| name == VOLUME) => named.to_owned(),
        Some(named) => format!("{named},{VOLUME}"),
    }
}

/// A line that is no longer than it may be.
fn cut(line: String) -> String {
    const REST: &str = " ...";
    if line.len() <= LONGEST {
        return line;
    }
    let end = (0..=LONGEST - REST.len()).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
    format!("{}{REST}", &line[..end])
}

/// The mutation with its annotations, where there is room for them. With nothing to do and nothing new to say it is no mutation.
fn explained(
    pod: &Pod,
    outcome: Outcome,
    mut operations: Vec<PatchOperation>,
    explanation: String,
    evictable: Option<String>,
) -> Mutation {
    let explanation = cut(explanation);
    let wanted = [(EXPLANATION, Some(explanation.clone())), (EVICTABLE, evictable)];
    let mut new: BTreeMap<&str, String> = wanted
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .filter(|(name, value)| annotation(pod, name) != Some(value))
        .collect();
    let others = pod.metadata.annotations.iter().flatten().filter(|(name, _)| !new.contains_key(name.as_str()));
    let others: usize = others.map(|(name, value)| name.len() + value.len()).sum();
    if others + new.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > ANNOTATIONS {
        new.clear();
    }
    let annotations = Place::new(&["metadata", "annotations"]);
    if pod.metadata.annotations.is_some() {
        operations.extend(new.into_iter().map(|(name, value)| annotations.then(name).set(json!(value))));
    } else if !new.is_empty() {
        operations.push(annotations.set(json!(new)));
    }
    let outcome = if operations.is_empty() { Outcome::Unchanged } else { outcome };
    Mutation { patch: Patch(operations), outcome, explanation: Some(explanation) }
}
