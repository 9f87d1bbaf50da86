//! Pressure notifications of cgroup v1 (`memory.pressure_level`), for hosts that still control memory that way.

use super::cgroup::GroupDir;
use crate::os::fd;
use crate::os::syscall::{Errno, Result};
use arrayvec::ArrayString;
use core::fmt::Write;

/// Registers at the ancestor `up` levels above for a level (`low`, `medium` or `critical`) and all above it; `level`
/// may have a mode behind it: `low,hierarchy` hears all groups below too, whoever else listens there. Gives an eventfd
/// that becomes readable when the group reclaims that hard, and once when the group is removed. Needs the right to
/// write `cgroup.event_control`.
pub fn arm(dir: &GroupDir, up: usize, level: &str) -> Result<i32> {
    let source = dir.open_file(up, b"memory.pressure_level", fd::O_RDONLY)?;
    let result = arm_on(dir, up, source, level);
    // The registration holds the group, not this descriptor.
    let _ = fd::close(source);
    result
}

/// Registers at the group itself, for what it reclaims alone: a limit of a group below is met there, and is none of those
/// here. Kernels before 4.13 cannot tell them apart.
pub fn arm_own(dir: &GroupDir, level: &str) -> Result<i32> {
    let mut local = ArrayString::<16>::new();
    let local = write!(local, "{level},local").map_or(level, |()| &local);
    arm(dir, 0, local).or_else(|_| arm(dir, 0, level))
}

fn arm_on(dir: &GroupDir, up: usize, source: i32, level: &str) -> Result<i32> {
    let control = dir.open_file(up, b"cgroup.event_control", fd::O_WRONLY)?;
    let event = match fd::eventfd() {
        Ok(event) => event,
        Err(e) => {
            let _ = fd::close(control);
            return Err(e);
        }
    };
    let mut line = ArrayString::<64>::new();
    let written = match write!(line, "{event} {source} {level}") {
        Ok(()) => fd::write(control, line.as_bytes()).map(drop),
        Err(_) => Err(Errno::ENAMETOOLONG),
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
    use crate::os::file::path::FixedPath;
    use crate::pressure::group::cgroup::{Cgroup, Membership, Version};
    use std::fs;

    /// A v1 memory group with two below it, the first with a limit, where the one who tests may make them.
    struct Groups(std::path::PathBuf);

    impl Groups {
        fn make(name: &str) -> Option<Self> {
            let own = Membership::find().memory.filter(|g| g.version == Version::V1)?;
            let parent = std::path::Path::new(own.dir.as_c_str().to_str().ok()?);
            let top = Self(parent.join(std::format!("weir-test-{name}-{}", std::process::id())));
            fs::create_dir(&top.0).ok()?;
            ["small", "other"].iter().try_for_each(|group| fs::create_dir(top.0.join(group))).ok()?;
            fs::write(top.0.join("small/memory.limit_in_bytes"), "16M").ok().map(|()| top)
        }

        fn open(&self, group: &str) -> GroupDir {
            let dir = FixedPath::from_parts(&[self.0.join(group).to_str().unwrap().as_bytes()]).unwrap();
            GroupDir::open(&Cgroup { version: Version::V1, dir, depth: 1 }).unwrap()
        }

        /// File pages beyond the limit make the group reclaim without any risk of a kill.
        fn fill(&self) {
            let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
            let script = std::format!(
                "echo $$ > {}/small/cgroup.procs && dd if=/dev/zero of={} bs=1M count=64 conv=fsync 2>/dev/null",
                self.0.display(),
                file.display()
            );
            assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let all = [self.0.join("small"), self.0.join("other"), self.0.clone()];
            all.iter().for_each(|dir| drop(fs::remove_dir(dir)));
        }
    }

    fn is_readable(event: i32) -> bool {
        let mut poll = [fd::PollFd { fd: event, events: fd::POLLIN, revents: 0 }];
        fd::ppoll(&mut poll, Some(2_000_000_000)) == Ok(1)
    }

    #[test]
    fn a_group_that_reclaims_says_so() {
        let Some(groups) = Groups::make("level") else {
            weir_testing::skip!("no v1 memory group can be made here");
            return;
        };
        let group = groups.open("small");
        let event = arm(&group, 0, "low").unwrap();
        assert_eq!(fd::eventfd_take(event), Ok(0));
        assert_eq!(arm(&group, 0, "no such level"), Err(Errno::EINVAL));
        groups.fill();
        let heard = is_readable(event);
        group.close();
        fd::close(event).unwrap();
        assert!(heard, "no event although the group was over its limit");
    }

    /// So a process is heard of wherever below the ancestor it was moved to, also where others listen.
    #[test]
    fn an_ancestor_hears_of_a_group_beside() {
        let Some(groups) = Groups::make("hint") else {
            weir_testing::skip!("no v1 memory group can be made here");
            return;
        };
        let (here, there, above) = (groups.open("other"), groups.open("small"), groups.open("."));
        let own = arm_own(&here, "low").unwrap();
        let of_above = arm_own(&above, "low").unwrap();
        let hint = arm(&here, 1, "low,hierarchy").unwrap();
        groups.fill();
        let heard = is_readable(hint);
        assert_eq!(fd::eventfd_take(own), Ok(0), "the group that was left says nothing");
        assert_eq!(fd::eventfd_take(of_above), Ok(0), "a limit below is none of the group above");
        [own, of_above, hint].into_iter().for_each(|event| fd::close(event).unwrap());
        [here, there, above].into_iter().for_each(GroupDir::close);
        assert!(heard, "no event although a group below the ancestor was over its limit");
    }
}
