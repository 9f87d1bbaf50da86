//! Which pod and container a cgroup is of, by its path.
//!
//! | driver | the path below the hierarchy's root |
//! |---|---|
//! | cgroupfs | `kubepods/burstable/podUID/ID`, `kubepods/podUID/ID` |
//! | systemd | `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_I_D.slice/cri-containerd-ID.scope` |
//!
//! What lies before `kubepods` does not matter, nor what a program made below its container's group. A kubelet with a root of its
//! own has that in the names of systemd's slices, too: `kubelet.slice/kubelet-kubepods.slice/...` in kind.

use serde::Serialize;
use std::path::Path;

/// Prefixes of scopes that are named by the runtime and the container's ID.
const RUNTIMES: [&str; 4] = ["cri-containerd-", "crio-", "docker-", "containerd-"];
/// Length of a container's ID: 32 bytes in hexadecimal digits.
const ID: usize = 64;

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// The pod's UID, as the path has it: that of a static pod is another than the API's.
    pub pod: String,
    /// The container's ID, without the runtime's name.
    pub container: String,
}

/// The container whose group this is, and how many parts of the path name it: those behind are the program's own.
pub fn of(path: &Path) -> Option<(Place, usize)> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    let is_of_pods = |part: &&str| part.split(['-', '.']).any(|word| word == "kubepods");
    let begin = parts.iter().position(is_of_pods)?;
    (begin + 1..parts.len()).find_map(|at| {
        let place = Place { pod: pod(parts[at - 1])?, container: container(parts[at])? };
        Some((place, at + 1))
    })
}

fn pod(part: &str) -> Option<String> {
    let slice = part.strip_suffix(".slice").and_then(|slice| slice.rsplit_once("-pod")).map(|(_, uid)| uid);
    let uid = slice.or_else(|| part.strip_prefix("pod"))?;
    (!uid.is_empty()).then(|| uid.replace('_', "-"))
}

fn container(part: &str) -> Option<String> {
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    let id = RUNTIMES.iter().find_map(|runtime| scope.strip_prefix(runtime)).unwrap_or(scope);
    (id.len() == ID && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_found_by_both_drivers_and_all_runtimes() {
        let id = "0123456789abcdef".repeat(4);
        let uid = "6f1d9c3e-1111-2222-3333-444444444444";
        for path in [
            "kubepods/burstable/podUID/ID",
            "kubepods/podUID/ID",
            "kubepods/besteffort/podUID/ID/own/group",
            "kubepods/burstable/podUID/crio-ID",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_D.slice/cri-containerd-ID.scope",
            "kubepods.slice/kubepods-podU_D.slice/crio-ID.scope/container",
            "kubelet/kubepods/burstable/podUID/ID",
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU_D.slice/docker-ID.scope",
            "system.slice/docker-ID.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
             kubelet-kubepods-burstable-podU_D.slice/cri-containerd-ID.scope",
        ] {
            let path = path.replace("UID", uid).replace("U_D", &uid.replace('-', "_")).replace("ID", &id);
            let (place, parts) = of(Path::new(&path)).unwrap_or_else(|| panic!("{path}"));
            assert_eq!((place.pod.as_str(), place.container.as_str()), (uid, id.as_str()), "{path}");
            assert!(Path::new(&path).iter().nth(parts - 1).unwrap().to_str().unwrap().contains(&id), "{path}");
        }
    }

    #[test]
    fn what_is_no_container_of_a_pod_has_none() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            "",
            "docker/ID",
            "kubepods/burstable/podUID",
            "kubepods/burstable/pod/ID",
            "kubepods/burstable/podUID/IDx",
            "kubepods.slice/kubepods-podUID.slice/crio-conmon-ID.scope",
            "system.slice/podUID/ID",
        ] {
            assert_eq!(of(Path::new(&path.replace("ID", &id))), None, "{path}");
        }
    }
}
