//! For which operating system a pod is.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

const LINUX: &str = "linux";
/// The labels by which nodes say theirs. The second is older; some pods still select by it.
const LABELS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];

/// Whether a pod is for Linux. The first of these that speaks of it counts: its own field, the labels that it selects nodes by,
/// the nodes that it must be placed on. Where none does, options for Windows alone say that it is not.
pub fn is_linux(spec: &PodSpec) -> bool {
    let named = spec.os.as_ref().map(|os| os.name == LINUX);
    named.or_else(|| by_selector(spec)).or_else(|| by_affinity(spec)).unwrap_or_else(|| !has_windows_options(spec))
}

fn by_selector(spec: &PodSpec) -> Option<bool> {
    let labels = spec.node_selector.as_ref()?;
    LABELS.iter().filter_map(|&label| labels.get(label)).map(|os| os == LINUX).reduce(|one, other| one && other)
}

/// One of the terms has to hold. So a term that does not speak of it leaves it open.
fn by_affinity(spec: &PodSpec) -> Option<bool> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let either = |one, other| match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    };
    terms.iter().map(by_term).reduce(either)?
}

/// All requirements of a term have to hold.
fn by_term(term: &NodeSelectorTerm) -> Option<bool> {
    term.match_expressions.iter().flatten().filter_map(allows).reduce(|one, other| one && other)
}

/// Whether a node of Linux meets it; none: it does not speak of systems.
fn allows(requirement: &NodeSelectorRequirement) -> Option<bool> {
    let is_named = requirement.values.iter().flatten().any(|value| value == LINUX);
    match requirement.operator.as_str() {
        _ if !LABELS.contains(&requirement.key.as_str()) => None,
        "In" => Some(is_named),
        "NotIn" => Some(!is_named),
        _ => None,
    }
}

/// An empty object, as templates for both systems leave it, says nothing.
fn has_windows_options(spec: &PodSpec) -> bool {
    let of_pod = spec.security_context.iter().filter_map(|context| context.windows_options.as_ref());
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let contexts = containers.filter_map(|container| container.security_context.as_ref());
    let of_containers = contexts.filter_map(|context| context.windows_options.as_ref());
    of_pod.chain(of_containers).any(|options| *options != Default::default())
}
