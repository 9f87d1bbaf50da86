//! Which container a process is in, by the path of its cgroup.
//!
//! | who made the group | the last parts of its path |
//! |---|---|
//! | Docker | `docker/ID`, `docker-ID.scope` |
//! | Kubernetes with containerd | `cri-containerd-ID.scope`, `kubepods/.../podUID/ID` |
//! | Kubernetes with CRI-O | `crio-ID.scope` |
//! | Podman | `libpod-ID.scope` |
//! | systemd's machines (nspawn, libvirt) | `machine-NAME.scope`, `systemd-nspawn@NAME.service` |
//! | LXC | `lxc.payload.NAME`, `lxc/NAME` |

/// Prefixes of scopes that are named by the runtime and the container's ID.
const RUNTIMES: [&str; 4] = ["docker-", "cri-containerd-", "crio-", "libpod-"];
/// Length of a container's ID: 32 bytes in hexadecimal digits.
const ID: usize = 64;

/// The ID of the container, or the name of the machine. A program in the container may have made groups below its own:
/// the innermost container counts.
pub fn of_cgroup(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    (0..parts.len()).rev().find_map(|at| of_part(&parts[..at], parts[at]))
}

fn of_part(above: &[&str], part: &str) -> Option<String> {
    let scope = part.strip_suffix(".scope");
    let id = scope.and_then(|scope| RUNTIMES.iter().find_map(|runtime| scope.strip_prefix(runtime)));
    if let Some(id) = id.filter(|id| is_id(id)) {
        return Some(id.to_owned());
    }
    let machine = scope.and_then(|scope| scope.strip_prefix("machine-"));
    let nspawn = || part.strip_prefix("systemd-nspawn@").and_then(|rest| rest.strip_suffix(".service"));
    if let Some(name) = machine.or_else(nspawn).filter(|name| !name.is_empty()) {
        return Some(unescaped(name));
    }
    let last = above.last().copied().unwrap_or_default();
    let in_kubepods = || above.iter().any(|part| part.starts_with("kubepods"));
    if is_id(part) && (last == "docker" || in_kubepods()) {
        return Some(part.to_owned());
    }
    let lxc = part.strip_prefix("lxc.payload.").or((last == "lxc").then_some(part));
    lxc.filter(|name| !name.is_empty()).map(str::to_owned)
}

fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A name as it was before systemd escaped it: `\x2d` is a hyphen.
fn unescaped(name: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
    while let [first, tail @ ..] = rest {
        let code = rest.strip_prefix(br"\x").and_then(|code| code.get(..2));
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &rest[4..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_found_in_the_paths_of_their_makers() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            "/docker/ID",
            "/system.slice/docker-ID.scope",
            "/system.slice/docker-ID.scope/init.scope",
            "/kubepods/besteffort/pod6f1d9c3e-0000-0000-0000-000000000000/ID",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1d.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-pod6f1d.slice/crio-ID.scope/container",
            "/machine.slice/libpod-ID.scope/container",
            "/../../docker/ID",
        ] {
            assert_eq!(of_cgroup(&path.replace("ID", &id)), Some(id.clone()), "{path}");
        }
        for (path, name) in [
            ("/machine.slice/machine-web.scope", "web"),
            (r"/machine.slice/machine-qemu\x2d1\x2ddebian.scope/libvirt/emulator", "qemu-1-debian"),
            ("/machine.slice/systemd-nspawn@build.service/payload", "build"),
            ("/lxc.payload.mail/system.slice/postfix.service", "mail"),
            ("/lxc/mail", "mail"),
        ] {
            assert_eq!(of_cgroup(path).as_deref(), Some(name), "{path}");
        }
    }

    #[test]
    fn what_is_in_no_container_has_none() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            "",
            "/",
            "/user.slice/user-1000.slice/session-2.scope",
            "/system.slice/docker.service",
            "/system.slice/docker-.scope",
            "/docker/buildx",
            "/docker-short.scope",
            "/machine.slice/machine-.scope",
            "/lxc/",
            &format!("/somewhere/{id}"),
            &format!("/kubepods/{id}x"),
        ] {
            assert_eq!(of_cgroup(path), None, "{path}");
        }
    }

    #[test]
    fn an_escape_that_is_none_is_left_as_it_is() {
        assert_eq!(unescaped(r"a\x2db\xzz\x2"), r"a-b\xzz\x2");
        assert_eq!(unescaped(r"\xff"), "\u{fffd}");
    }
}
