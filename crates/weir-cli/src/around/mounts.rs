//! The mounts that a process sees, and the file systems that they are of.

use procfs::process::MountInfo;
use std::fs::File;
use std::io::Read;

/// Bytes of a process's list of mounts that are read at most.
const MOST: u64 = 16 << 20;
/// File systems of which the files are memory, and no copy of a disk's.
const IN_MEMORY: [&str; 4] = ["tmpfs", "devtmpfs", "ramfs", "rootfs"];

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number, as the kernel tells it of an open file.
    pub number: i32,
    /// The number of the file system's device, as the kernel tells it of a mapping.
    pub device: (i32, i32),
    /// The name of the file system.
    pub system: String,
}

impl Mount {
    /// Whether its files are memory.
    pub fn is_in_memory(&self) -> bool {
        IN_MEMORY.contains(&self.system.as_str())
    }
}

/// The mounts of a process; none: they cannot be read, or are more than are read.
pub fn of(pid: i32) -> Option<Vec<Mount>> {
    let mut text = Vec::new();
    let file = File::open(format!("/proc/{pid}/mountinfo")).ok()?;
    file.take(MOST).read_to_end(&mut text).ok().filter(|&read| (read as u64) < MOST)?;
    Some(parse(&text))
}

/// The mounts in such a list, whatever the names in it are: it is the process's own.
fn parse(list: &[u8]) -> Vec<Mount> {
    let of_line = |line: &str| {
        let mount = MountInfo::from_line(line).ok()?;
        let (major, minor) = mount.majmin.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        Some(Mount { number: mount.mnt_id, device, system: mount.fs_type })
    };
    String::from_utf8_lossy(list).lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_known_whatever_their_names_are() {
        let disk = b"22 1 254:0 / /a\\040-\\040b rw shared:1 - ext4 /dev/x rw\n";
        let list = [&disk[..], b"23 22 0:42 / /\xff\xfe rw - tmpfs x rw\nno list\n"].concat();
        let mount = |number, device, system: &str| Mount { number, device, system: system.into() };
        let found = parse(&list);
        assert_eq!(found, [mount(22, (254, 0), "ext4"), mount(23, (0, 42), "tmpfs")]);
        assert_eq!(found.iter().map(Mount::is_in_memory).collect::<Vec<_>>(), [false, true]);
    }
}
