//! What the machine has to have, and how to get it.

use std::path::{Path, PathBuf};

/// Programs, and Debian's packages of them.
const PROGRAMS: [(&str, &str); 7] = [
    ("postmark", "postmark"),
    ("nbdfuse", "libnbd-bin"),
    ("fusermount3", "fuse3"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
];

/// Where a program is: on the path, or where the system's own are.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into(), "/usr/games".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.exists())
}

/// The server, beside this program.
pub fn server() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let server = own.with_file_name("weir-nbd");
    if server.exists() { Ok(server) } else { Err("weir-nbd beside weir-lab: cargo build --release -p weir-nbd".into()) }
}

/// What is missing, a line each.
pub fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    // SAFETY: geteuid takes and changes nothing.
    if unsafe { libc::geteuid() } != 0 {
        missing.push("root: loop devices, mounts, cgroups and swap need it".to_string());
    }
    for (program, package) in PROGRAMS {
        if find(program).is_none() {
            missing.push(format!("{program}: apt-get install {package}"));
        }
    }
    for (device, how) in [("/dev/fuse", "modprobe fuse"), ("/dev/loop-control", "modprobe loop")] {
        if !Path::new(device).exists() {
            missing.push(format!("{device}: {how}"));
        }
    }
    missing.extend(server().err());
    missing.extend(crate::harness::cgroup::version().err());
    missing
}

#[cfg(test)]
mod tests {
    #[test]
    fn programs_are_found_where_they_are() {
        assert!(super::find("sh").is_some() && super::find("no-such-program").is_none());
    }
}
