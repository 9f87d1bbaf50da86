//! The library in a pod: the volume that it is in, how it comes there, and what the loader is told.

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use serde_json::{Map, Value, json};
use weir_policy::quantity;

/// The name of the volume.
pub const VOLUME: &str = "weir-library";
/// The name of the init container.
pub const INIT_CONTAINER: &str = "weir-library";
/// Where the volume is mounted. A folder of the root: a volume of the pod's own that is mounted at a parent would get a
/// folder made in it, or, read-only, would keep the container from starting.
pub const MOUNT: &str = "/weir";
/// The folder of the image that has the library. Both ways give it the same path in a container.
const FOLDER: &str = "library";
/// Above the libraries of both C libraries, 1.3 MiB each, and their links.
const SIZE_LIMIT: &str = "16Mi";

/// The most that the init container asks for and may use: copying takes 7 MiB of it, page cache included, and a few ms of a CPU.
/// The limit of CPU as well, where it is above the request: a LimitRange may say how many times the request it may be.
const MOST: [(&str, &str); 2] = [("cpu", "50m"), ("memory", "32Mi")];

/// What the loader is told. glibc's loader replaces `$LIB` by its folder of libraries (`lib/x86_64-linux-gnu`, `lib64`,
/// `lib`), in which the image has the library for glibc. musl's does not replace it: in the folder of that very name the
/// image may have musl's. So no program is given the library of another C library or another word size.
pub const PRELOAD: &str = "/weir/library/$LIB/libweir.so.0";

/// How the library comes into a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// An init container copies it from its image into an `emptyDir`
    InitContainer,
    /// The image is mounted as a volume: needs Kubernetes 1.35, and on each node containerd 2.1 or CRI-O 1.31
    ImageVolume,
}

/// Where pods get the library from.
#[derive(Debug, Clone)]
pub struct Library {
    /// The image with the folder `/library`.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// How it comes into a pod.
    pub way: Way,
    /// The user of the init container. `None` leaves it to the image, as platforms that give out users themselves want.
    pub run_as_user: Option<i64>,
}

impl Library {
    /// The volume of a pod that has none yet.
    pub fn volume(&self) -> Value {
        match self.way {
            Way::InitContainer => json!({"name": VOLUME, "emptyDir": {"sizeLimit": SIZE_LIMIT}}),
            Way::ImageVolume => {
                json!({"name": VOLUME, "image": {"reference": self.image, "pullPolicy": self.pull_policy}})
            }
        }
    }

    /// The init container that fills an `emptyDir`. The profile `restricted` of pod security lets it pass.
    pub fn init_container(&self, spec: &PodSpec) -> Value {
        let mut container = json!({
            "name": INIT_CONTAINER,
            "image": self.image,
            "imagePullPolicy": self.pull_policy,
            // A pod whose machine was restarted keeps its volume, and copies again. A link that is there is not written over
            // without -f.
            "command": ["cp", "-Rf", format!("/{FOLDER}"), MOUNT],
            "resources": resources(spec),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [{"name": VOLUME, "mountPath": MOUNT}],
        });
        if let (Some(user), Some(context)) = (self.run_as_user, container.get_mut("securityContext")) {
            context["runAsUser"] = json!(user);
        }
        container
    }
}

/// What the volume is for a container.
pub fn mount() -> Value {
    json!({"name": VOLUME, "mountPath": MOUNT, "readOnly": true})
}

/// The resources of the init container are those of the pod's first container, but no more than copying takes. So the pod stays
/// of its quality of service: one container without a limit makes a guaranteed pod burstable. And it asks for no more than it did,
/// also once its containers' requests were lowered: Kubernetes counts the largest init container as long as the pod lives.
fn resources(spec: &PodSpec) -> Value {
    let Some(ResourceRequirements { limits, requests, .. }) =
        spec.containers.first().and_then(|c| c.resources.as_ref())
    else {
        return json!({});
    };
    let mut resources = Map::new();
    for (kind, quantities) in [("limits", limits), ("requests", requests)] {
        let common = quantities
            .iter()
            .flatten()
            .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage"));
        let common: Map<String, Value> =
            common.map(|(name, quantity)| (name.clone(), json!(capped(name, &quantity.0)))).collect();
        if !common.is_empty() {
            resources.insert(kind.to_owned(), common.into());
        }
    }
    resources.into()
}

/// A quantity of a resource, or the most of it, if that is less.
fn capped<'a>(name: &str, quantity: &'a str) -> &'a str {
    let most = MOST.iter().find(|(of, _)| *of == name).map(|(_, most)| *most);
    let values = most.and_then(|most| Some((most, quantity::value(quantity)?, quantity::value(most)?)));
    values.filter(|(_, asked, most)| asked > most).map_or(quantity, |(most, ..)| most)
}
