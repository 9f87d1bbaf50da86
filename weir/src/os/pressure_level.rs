//! Pressure notifications of cgroup v1 (`memory.pressure_level`), for hosts that still control memory that way.

use super::cgroup::GroupDir;
use super::fd;
use super::path::FixedPath;
use super::psi::decimal;
use super::syscall::{Errno, Result};

/// Registers at the ancestor `up` levels above for a level (`low`, `medium` or `critical`) and all above it; `level` may
/// have a mode behind it: `low,hierarchy` hears all groups below too, whoever else listens there. Gives an eventfd that
/// becomes readable when the group reclaims that hard, and once when the group is removed. Needs the right to write
/// `cgroup.event_control`.
pub fn arm(dir: &GroupDir, up: usize, level: &[u8]) -> Result<i32> {
    let source = dir.open_file(up, b"memory.pressure_level", fd::O_RDONLY)?;
    let result = arm_on(dir, up, source, level);
    // The registration holds the group, not this descriptor.
    let _ = fd::close(source);
    result
}

fn arm_on(dir: &GroupDir, up: usize, source: i32, level: &[u8]) -> Result<i32> {
    let control = dir.open_file(up, b"cgroup.event_control", fd::O_WRONLY)?;
    let event = match fd::eventfd() {
        Ok(event) => event,
        Err(e) => {
            let _ = fd::close(control);
            return Err(e);
        }
    };
    let (mut a, mut b) = ([0u8; 20], [0u8; 20]);
    let parts = [decimal(event as u64, &mut a), b" ", decimal(source as u64, &mut b), b" ", level];
    let written = match FixedPath::from_parts(&parts) {
        Some(text) => fd::write(control, text.as_bytes()).map(drop),
        None => Err(Errno::ENAMETOOLONG),
    };
    let _ = fd::close(control);
    if let Err(e) = written {
        let _ = fd::close(event);
        return Err(e);
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cgroup::{Cgroup, Membership, Version};
    use std::fs;

    /// A v1 memory group with a limit, where the one who tests may make one.
    fn small_group() -> Option<(std::path::PathBuf, GroupDir)> {
        let own = Membership::find().memory.filter(|g| g.version == Version::V1)?;
        let parent = std::path::Path::new(own.dir.as_c_str().to_str().ok()?);
        let dir = parent.join(std::format!("weir-test-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        if fs::write(dir.join("memory.limit_in_bytes"), "16M").is_err() {
            let _ = fs::remove_dir(&dir);
            return None;
        }
        let path = FixedPath::from_parts(&[dir.to_str()?.as_bytes()])?;
        let group = GroupDir::open(&Cgroup { version: Version::V1, dir: path, depth: 0 }).ok()?;
        Some((dir, group))
    }

    #[test]
    fn a_group_that_reclaims_says_so() {
        let Some((dir, group)) = small_group() else {
            std::eprintln!("skipped: no v1 memory group can be made here");
            return;
        };
        let event = arm(&group, 0, b"low").unwrap();
        assert_eq!(fd::eventfd_take(event), Ok(0));
        assert_eq!(arm(&group, 0, b"no such level"), Err(Errno::EINVAL));
        // File pages beyond the limit make the group reclaim without any risk of a kill.
        let file = std::env::temp_dir().join(std::format!("weir-level-{}", std::process::id()));
        let script = std::format!(
            "echo $$ > {}/cgroup.procs && dd if=/dev/zero of={} bs=1M count=64 conv=fsync 2>/dev/null",
            dir.display(),
            file.display()
        );
        assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let mut poll = [fd::PollFd { fd: event, events: fd::POLLIN, revents: 0 }];
        let events = fd::ppoll(&mut poll, Some(2_000_000_000)).unwrap();
        fs::remove_file(file).unwrap();
        group.close();
        fd::close(event).unwrap();
        fs::remove_dir(dir).unwrap();
        assert_eq!(events, 1, "no event although the group was over its limit");
    }
}
