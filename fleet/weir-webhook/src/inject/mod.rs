//! What is done to a pod: a function of the pod, of whether its namespace asks, and of the configuration.

mod container;
pub mod library;
mod patch;
#[cfg(test)]
mod tests;

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
    /// One line for a person, unless the pod did not ask.
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
        return explained(pod, Outcome::Left, Vec::new(), format!("left as it is: {reason}"));
    }
    let plans = Plans::of(pod, spec);
    let mut operations = plans.operations;
    if plans.on_weir.is_empty() {
        return explained(pod, Outcome::Left, Vec::new(), format!("left as it is: {}", plans.left.join("; ")));
    }
    operations.extend(bring(spec, library));
    let mut explanation = format!("preloaded in {}", plans.on_weir.join(", "));
    if !plans.left.is_empty() {
        explanation = format!("{explanation}; left: {}", plans.left.join("; "));
    }
    explained(pod, Outcome::Injected, operations, explanation)
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
    let os = spec.os.as_ref().map(|os| os.name.as_str());
    let selected = spec.node_selector.as_ref().and_then(|labels| labels.get("kubernetes.io/os")).map(String::as_str);
    if os.or(selected).is_some_and(|os| os != "linux") {
        return Some("it is not for Linux");
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
#[derive(PartialEq)]
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

/// The volume, and what fills it: those of the two that are not there yet. It comes after what was done to containers, as
/// it moves the init containers by one.
fn bring(spec: &PodSpec, library: &Library) -> Vec<PatchOperation> {
    let there = volume(spec);
    let mut operations = Vec::new();
    if there.is_none() {
        operations.push(List::new(Place::new(&["spec", "volumes"]), &spec.volumes).push(library.volume()));
    }
    let directory = there.unwrap_or(match library.way {
        library::Way::InitContainer => Held::Directory,
        library::Way::ImageVolume => Held::Image,
    });
    if directory == Held::Directory && bringer(spec).is_none() {
        let mut list = List::new(Place::new(&["spec", "initContainers"]), &spec.init_containers);
        operations.push(list.push_front(library.init_container(spec)));
    }
    operations
}

/// The mutation with its explanation as an annotation. With nothing to do and nothing new to say it is no mutation.
fn explained(pod: &Pod, outcome: Outcome, mut operations: Vec<PatchOperation>, explanation: String) -> Mutation {
    if annotation(pod, EXPLANATION) != Some(&explanation) {
        let annotations = Place::new(&["metadata", "annotations"]);
        operations.push(match pod.metadata.annotations {
            Some(_) => annotations.then(EXPLANATION).set(json!(explanation)),
            None => annotations.set(json!({EXPLANATION: explanation})),
        });
    }
    let outcome = if operations.is_empty() { Outcome::Unchanged } else { outcome };
    Mutation { patch: Patch(operations), outcome, explanation: Some(explanation) }
}
