//! Which run of weir-lab made a file, a folder or a cgroup, or started a process: its number is in their names, and in
//! the processes' environment. So a later run can tell what a killed one left ([`crate::harness::leftovers`]).

use std::process::Command;

const PREFIX: &str = "weir-lab-";

/// The variable that the processes have; what they start inherits it.
const VARIABLE: &str = "STARTED_BY_WEIR_LAB";

/// The name of something of this run: `rest` begins with a dash or a dot.
pub fn name(rest: &str) -> String {
    format!("{PREFIX}{}{rest}", std::process::id())
}

/// The number of the run that made something of this name.
pub fn of_name(name: &str) -> Option<u32> {
    let numbered = name.strip_prefix(PREFIX)?;
    let (number, _) = numbered.split_once(['-', '.'])?;
    number.parse().ok()
}

/// The number of the run that made something in this path: the path of a file itself or of one below it.
pub fn of_path(path: &str) -> Option<u32> {
    path.split('/').find_map(of_name)
}

/// Notes in a command that this run starts it.
pub fn mark(command: &mut Command) {
    command.env(VARIABLE, std::process::id().to_string());
}

/// The number of the run that started a process with this environment (`/proc/PID/environ`).
pub fn of_environment(environment: &[u8]) -> Option<u32> {
    let mut variables = environment.split(|&byte| byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    variables.find_map(|text| text.strip_prefix(VARIABLE)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_made_them() {
        let own = std::process::id();
        assert_eq!((of_name(&name(".swap")), of_name(&name("-e1"))), (Some(own), Some(own)));
        for other in ["weir-lab.lock", "weir-lab-load", "weir-lab-cache-weir", "weir-lab-12", "a-weir-lab-12.swap"] {
            assert_eq!(of_name(other), None, "{other}");
        }
        assert_eq!((of_path("/a/weir-lab-12-e1/fuse"), of_path("/a/weir-lab-load/b")), (Some(12), None));
    }

    #[test]
    fn environments_tell_who_started_a_process() {
        assert_eq!(of_environment(b"A=1\0STARTED_BY_WEIR_LAB=12\0B=2\0"), Some(12));
        assert_eq!(of_environment(b"A=STARTED_BY_WEIR_LAB=12\0STARTED_BY_WEIR_LAB=x\0"), None);
    }
}
