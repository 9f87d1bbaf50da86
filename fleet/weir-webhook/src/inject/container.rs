//! What is done to one container of a pod.

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use serde_json::json;

use super::library::{self, MOUNT, PRELOAD, VOLUME};
use super::patch::{List, Place};

const LD_PRELOAD: &str = "LD_PRELOAD";
const PYTHONMALLOC: &str = "PYTHONMALLOC";

/// What is to be done to a container.
#[derive(Debug)]
pub enum Plan {
    /// It preloads Weir after these operations, of which there may be none.
    Preload(Vec<PatchOperation>),
    /// It stays as it is, for this reason.
    Leave(&'static str),
}

/// The plan for the container at `place`. `python` asks for Python's objects to come from malloc.
pub fn plan(container: &Container, place: &Place, python: bool) -> Plan {
    let mounted = match mounted(container) {
        Ok(mounted) => mounted,
        Err(reason) => return Plan::Leave(reason),
    };
    let mut operations = Vec::new();
    let mut env = List::new(place.then("env"), &container.env);
    match last(container, LD_PRELOAD) {
        None => operations.push(env.push(json!({"name": LD_PRELOAD, "value": PRELOAD}))),
        Some((_, variable)) if variable.value_from.is_some() => {
            return Plan::Leave("its LD_PRELOAD comes from valueFrom, to which nothing can be added");
        }
        Some((at, variable)) => {
            let value = variable.value.as_deref().unwrap_or_default();
            match preloads(value) {
                Preloads::This => {}
                Preloads::Another => return Plan::Leave("it preloads a Weir of its own"),
                Preloads::None => operations.push(place.then("env").then(at).then("value").set(json!(first(value)))),
            }
        }
    }
    if python && last(container, PYTHONMALLOC).is_none() {
        operations.push(env.push(json!({"name": PYTHONMALLOC, "value": "malloc"})));
    }
    if !mounted {
        operations.push(List::new(place.then("volumeMounts"), &container.volume_mounts).push(library::mount()));
    }
    Plan::Preload(operations)
}

/// Whether the volume is mounted, or why it cannot be.
fn mounted(container: &Container) -> Result<bool, &'static str> {
    let is_there = |path: &str| path.strip_prefix(MOUNT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    // The API refuses a mount where a device is.
    if container.volume_devices.iter().flatten().any(|device| is_there(&device.device_path)) {
        return Err("it has a block device at /weir");
    }
    let mut mounted = false;
    for mount in container.volume_mounts.iter().flatten() {
        let path = mount.mount_path.trim_end_matches('/');
        if path == MOUNT && mount.name == VOLUME {
            mounted = true;
        } else if is_there(path) {
            return Err("it mounts a volume of its own at /weir");
        }
    }
    Ok(mounted)
}

/// The variable of this name that counts: the last one.
fn last<'a>(container: &'a Container, name: &str) -> Option<(usize, &'a EnvVar)> {
    container.env.iter().flatten().enumerate().filter(|(_, variable)| variable.name == name).last()
}

enum Preloads {
    This,
    Another,
    None,
}

/// Whether a list of libraries has Weir. Loaders split it at colons and blanks.
fn preloads(value: &str) -> Preloads {
    let mut found = Preloads::None;
    for library in value.split(|c: char| c == ':' || c.is_whitespace()) {
        let name = library.rsplit('/').next().unwrap_or_default();
        if library == PRELOAD {
            return Preloads::This;
        }
        if name.starts_with("libweir.so") {
            found = Preloads::Another;
        }
    }
    found
}

/// The list with Weir before all that was in it: the first library that has a `malloc` is the one that is called. Behind
/// another allocator Weir would be loaded and not used. Libraries that have no `malloc` do not mind their place.
fn first(value: &str) -> String {
    if value.trim().is_empty() { PRELOAD.to_owned() } else { format!("{PRELOAD}:{value}") }
}
