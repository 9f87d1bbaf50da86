//! Which control groups this process is in, and where their files are: v1, v2 and both at once, with and
//! without a cgroup namespace.

use crate::os::fd;
use crate::os::file::descriptor_table::has_room;
use crate::os::file::path::FixedPath;
use crate::os::file::text;
use crate::os::syscall::{Errno, Result};
use crate::os::tasks;
use core::cell::Cell;
use core::ffi::CStr;
use core::ops::ControlFlow;

/// Which interface a group's files follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy a controller (`memory.limit_in_bytes`).
    V1,
    /// The unified hierarchy (`memory.max`).
    V2,
}

/// A control group directory.
#[derive(Clone, Debug)]
pub struct Cgroup {
    /// Which files it has.
    pub version: Version,
    /// The directory.
    pub dir: FixedPath,
    /// How many ancestors are visible above it, up to the root of the mount.
    pub depth: usize,
}

/// The groups that bear on this process's memory.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    /// The group that the memory controller charges.
    pub memory: Option<Cgroup>,
    /// The group in the unified hierarchy, which has `memory.pressure` even where v1 controls memory.
    pub unified: Option<Cgroup>,
}

impl Membership {
    /// Finds the groups of this process.
    pub fn find() -> Self {
        Self::read(own_file(), [c"/proc/thread-self/mountinfo", c"/proc/self/mountinfo"], exists)
    }

    /// The mounts are those of the first file that can be read: a main thread that has ended before others has none.
    fn read(cgroup: &CStr, mountinfo: [&CStr; 2], exists: impl Fn(&Cgroup) -> bool) -> Self {
        // Longer lines (of layered file systems) are left out.
        let mut buf = [0u8; 2048];
        let mut paths = OwnPaths::default();
        let _ = text::for_each_record(cgroup, b'\n', &mut buf, |line| {
            paths.take(line);
            ControlFlow::Continue(())
        });
        let mut hierarchies = Hierarchies::default();
        let _ = mountinfo.into_iter().find(|file| {
            let take = |line: &[u8]| {
                hierarchies.take(line, &paths, &exists);
                ControlFlow::Continue(())
            };
            text::for_each_record(file, b'\n', &mut buf, take).is_ok()
        });
        // A v1 memory hierarchy that is mounted owns the controller; otherwise the unified one has it.
        let memory = hierarchies.v1.best().or_else(|| hierarchies.v2.best()).cloned();
        Self { memory, unified: hierarchies.v2.best().cloned() }
    }
}

/// Where this process's groups are written: of the main thread, whose groups are charged. Once that has ended before others the
/// kernel tells of it the root (v1), or where it was (v2), and the calling thread's are the process's.
pub fn own_file() -> &'static CStr {
    if tasks::main_thread_has_ended() { c"/proc/thread-self/cgroup" } else { c"/proc/self/cgroup" }
}

/// A group's directory counts only if its files can be reached: a path from outside a container cannot.
fn exists(group: &Cgroup) -> bool {
    FixedPath::from_parts(&[group.dir.as_bytes(), b"/cgroup.procs"]).is_some_and(|p| fd::stat(p.as_c_str()).is_ok())
}

/// A digest of the lines of `/proc/self/cgroup`, open as `file`, that [`Membership::find`] goes by: another one means
/// that the process was moved. `None` if it cannot be read.
pub fn digest(file: i32) -> Option<u64> {
    let mut buf = [0u8; 2048];
    let mut digest = FNV_OFFSET;
    text::for_each_record_of(file, b'\n', &mut buf, |line| {
        if names_memory(line) {
            digest = line.iter().chain(b"\n").fold(digest, |d, &b| (d ^ u64::from(b)).wrapping_mul(FNV_PRIME));
        }
        ControlFlow::Continue(())
    })
    .ok()
    .map(|()| digest)
}

/// FNV-1a, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x100_0000_01b3;

/// Whether a line `ID:CONTROLLERS:PATH` is of the v1 memory controller, or of the unified hierarchy.
fn names_memory(line: &[u8]) -> bool {
    let controllers = line.split(|&b| b == b':').nth(1);
    line.starts_with(b"0::") || controllers.is_some_and(|c| c.split(|&b| b == b',').any(|c| c == b"memory"))
}

/// The paths that `/proc/self/cgroup` gives.
#[derive(Default)]
struct OwnPaths {
    v1_memory: Option<FixedPath>,
    v2: Option<FixedPath>,
}

impl OwnPaths {
    /// Takes a line `ID:CONTROLLERS:PATH`; the path may hold colons.
    fn take(&mut self, line: &[u8]) {
        let mut fields = line.splitn(3, |&b| b == b':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { return };
        // A group that was removed while the process lives in it.
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        if controllers.split(|&b| b == b',').any(|c| c == b"memory") {
            self.v1_memory = FixedPath::from_parts(&[path]);
        } else if id == b"0" && controllers.is_empty() {
            self.v2 = FixedPath::from_parts(&[path]);
        }
    }
}

/// Candidates of one hierarchy: a hierarchy may be mounted more than once.
#[derive(Default)]
struct Candidates {
    own: Option<Cgroup>,
    mount_root: Option<Cgroup>,
}

impl Candidates {
    fn best(&self) -> Option<&Cgroup> {
        self.own.as_ref().or(self.mount_root.as_ref())
    }
}

#[derive(Default)]
struct Hierarchies {
    v1: Candidates,
    v2: Candidates,
}

impl Hierarchies {
    /// Takes a line of mountinfo.
    fn take(&mut self, line: &[u8], own: &OwnPaths, exists: &impl Fn(&Cgroup) -> bool) {
        let Some((mount, version)) = Mount::parse(line) else { return };
        let (candidates, path) = match version {
            Version::V1 => (&mut self.v1, &own.v1_memory),
            Version::V2 => (&mut self.v2, &own.v2),
        };
        let Some(path) = path else { return };
        if candidates.own.is_none() {
            candidates.own = mount.own_group(path.as_bytes(), version).filter(exists);
        }
        if candidates.mount_root.is_none() {
            let root = Cgroup { version, dir: mount.point.clone(), depth: 0 };
            candidates.mount_root = Some(root).filter(exists);
        }
    }
}

/// A mounted hierarchy: where, and which of its directories is at the mount's top.
struct Mount {
    root: FixedPath,
    point: FixedPath,
}

impl Mount {
    /// `ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAGS] - TYPE SOURCE SUPER_OPTIONS`
    fn parse(line: &[u8]) -> Option<(Self, Version)> {
        let mut fields = text::words(line);
        let (root, point) = (fields.nth(3)?, fields.next()?);
        fields.find(|field| *field == b"-")?;
        let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match kind {
            b"cgroup2" => Version::V2,
            b"cgroup" if options.split(|&b| b == b',').any(|o| o == b"memory") => Version::V1,
            _ => return None,
        };
        Some((Self { root: unescape(root)?, point: unescape(point)? }, version))
    }

    /// The process's own directory under this mount. `None` where its path does not lie below the mount's root
    /// (seen from another cgroup namespace).
    fn own_group(&self, path: &[u8], version: Version) -> Option<Cgroup> {
        let root = self.root.as_bytes();
        let below = if root == b"/" { path } else { path.strip_prefix(root)? };
        let below = below.strip_suffix(b"/").unwrap_or(below);
        if !below.is_empty() && below[0] != b'/' {
            return None;
        }
        if below.split(|&b| b == b'/').any(|part| part == b"..") {
            return None;
        }
        let depth = below.iter().filter(|&&b| b == b'/').count();
        Some(Cgroup { version, dir: FixedPath::from_parts(&[self.point.as_bytes(), below])?, depth })
    }
}

/// Undoes mountinfo's `\040` for blanks, tabs, line ends and backslashes.
fn unescape(field: &[u8]) -> Option<FixedPath> {
    let mut path = FixedPath::new();
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            digits.iter().try_fold(0u32, |v, d| (b'0'..=b'7').contains(d).then(|| v * 8 + u32::from(d - b'0')))
        };
        let (byte, used) = match (first, tail.get(..3).and_then(octal)) {
            (b'\\', Some(code @ 1..=255)) => (code as u8, 4),
            _ => (first, 1),
        };
        if !path.push(&[byte]) {
            return None;
        }
        rest = &rest[used..];
    }
    Some(path)
}

/// A file of a group's that is read again and again.
#[derive(Clone, Copy, Debug)]
pub enum GroupFile {
    /// The hard limit.
    Max,
    /// The throttling limit; v1 has none.
    High,
    /// Bytes that are charged.
    Usage,
    /// What is charged, by kind.
    Stat,
    /// Stalls; of the unified hierarchy alone.
    Pressure,
}

impl GroupFile {
    const COUNT: usize = Self::Pressure as usize + 1;

    const fn name(self, version: Version) -> &'static [u8] {
        match (self, version) {
            (Self::Max, Version::V2) => b"memory.max",
            (Self::Max, Version::V1) => b"memory.limit_in_bytes",
            (Self::High, _) => b"memory.high",
            (Self::Usage, Version::V2) => b"memory.current",
            (Self::Usage, Version::V1) => b"memory.usage_in_bytes",
            (Self::Stat, _) => b"memory.stat",
            (Self::Pressure, _) => b"memory.pressure",
        }
    }
}

/// Levels whose files are kept open: a program of a desktop session, the most usual deep place, has five.
const KEPT_LEVELS: usize = 5;

/// An open group directory, through which its files are reached even after a `chroot`.
///
/// Of one that keeps its files open each is opened when it is first read. To open and read such a file takes memory that the
/// group is charged for: the file, and a buffer of a page. A thread that is charged for while the group is above its
/// `memory.high` is put to sleep for up to 2 s by the kernel. So the thread that is to release memory must not be.
#[derive(Debug)]
pub struct GroupDir {
    /// An `O_PATH` descriptor.
    pub fd: i32,
    /// Which files the group has.
    pub version: Version,
    /// How many ancestors are visible above it, but for the root of the unified hierarchy: that has no limit, nor a file for one. To
    /// look for it anew at each reading would take memory, too.
    pub depth: usize,
    /// Descriptors of files kept open, by level and [`GroupFile`]; -1: none. `None`: files are closed after reading.
    kept: Option<[[Cell<i32>; GroupFile::COUNT]; KEPT_LEVELS]>,
    /// [`GroupDir::number`] by level, once it was looked up.
    numbers: [Cell<u64>; KEPT_LEVELS],
}

impl GroupDir {
    /// Opens a group's directory.
    pub fn open(group: &Cgroup) -> Result<Self> {
        use linux_raw_sys::general::{O_DIRECTORY, O_PATH};
        let fd = fd::open(group.dir.as_c_str(), O_PATH | O_DIRECTORY)?;
        let mut dir = Self { fd, version: group.version, depth: group.depth, kept: None, numbers: Default::default() };
        // Before Linux 4.14 no group has a type.
        let is_root = |up| dir.is_root(up) && dir.lacks(up, GroupFile::Max.name(Version::V2));
        if dir.version == Version::V2 && dir.depth > 0 && is_root(dir.depth) {
            dir.depth -= 1;
        }
        Ok(dir)
    }

    /// Keeps files open from now on. Only for a thread with a descriptor table of its own.
    pub fn keep_files(&mut self) {
        self.kept = Some([const { [const { Cell::new(-1) }; GroupFile::COUNT] }; KEPT_LEVELS]);
    }

    /// Whether this is the root of the whole hierarchy and not merely of what a container sees: only the root lacks
    /// `cgroup.type`.
    pub fn is_hierarchy_root(&self) -> bool {
        self.is_root(0)
    }

    /// [`GroupDir::is_hierarchy_root`] of the ancestor `up` levels above.
    fn is_root(&self, up: usize) -> bool {
        self.lacks(up, b"cgroup.type")
    }

    /// Whether a file is not there, of the ancestor `up` levels above.
    fn lacks(&self, up: usize, name: &[u8]) -> bool {
        match self.open_file(up, name, fd::O_RDONLY) {
            Ok(file) => {
                let _ = fd::close(file);
                false
            }
            Err(e) => e == Errno::ENOENT,
        }
    }

    /// Closes the directory, and its files.
    pub fn close(self) {
        let kept = self.kept.iter().flatten().flatten().map(Cell::get).filter(|&file| file >= 0);
        kept.chain([self.fd]).for_each(|file| _ = fd::close(file));
    }

    /// The number (inode) of the ancestor `up` levels above: no other group of the machine has it. 0: it cannot be had, or it would
    /// not say which limit holds, as in v1 a group tells of limits that are out of sight.
    pub fn number(&self, up: usize) -> u64 {
        let known = self.numbers.get(up);
        if let Some(number) = known.map(Cell::get).filter(|&number| number != 0) {
            return number;
        }
        let inode = || -> Result<u64> {
            let dir = self.open_file(up, b".", fd::O_PATH)?;
            let stat = fd::fstat(dir);
            fd::close(dir)?;
            Ok(stat?.id.1)
        };
        let number = if self.version == Version::V2 { inode().unwrap_or(0) } else { 0 };
        known.into_iter().for_each(|known| known.set(number));
        number
    }

    /// Opens a file of the ancestor `up` levels above (0: the group itself).
    pub fn open_file(&self, up: usize, name: &[u8], flags: u32) -> Result<i32> {
        let mut path = FixedPath::new();
        let fits = (0..up).all(|_| path.push(b"../")) && path.push(name);
        if !fits {
            return Err(Errno::ENAMETOOLONG);
        }
        fd::openat(self.fd, path.as_c_str(), flags, 0)
    }

    /// Reads a file of the ancestor `up` levels above into `buf`.
    pub fn read_file<'a>(&self, up: usize, file: GroupFile, buf: &'a mut [u8]) -> Result<&'a [u8]> {
        let kept = self.kept.as_ref().and_then(|levels| Some(&levels.get(up)?[file as usize]));
        if let Some(kept) = kept.filter(|kept| kept.get() >= 0) {
            match fd::pread(kept.get(), buf, 0) {
                Ok(len) => return Ok(&buf[..len]),
                // The file was taken away. Another one may be there by now, as where a controller went and came back.
                Err(_) => _ = fd::close(kept.replace(-1)),
            }
        }
        let opened = self.open_file(up, file.name(self.version), fd::O_RDONLY)?;
        let len = fd::read_all(opened, buf);
        match kept.filter(|_| len.is_ok() && has_room(opened)) {
            Some(kept) => kept.set(opened),
            None => _ = fd::close(opened),
        }
        len.map(|len| &buf[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::file::descriptor_table::private_table;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;
    use std::vec::Vec;

    fn find(cgroup: &str, mountinfo: &str, there: &[&str]) -> [Option<(Version, std::string::String, usize)>; 2] {
        let mut own = OwnPaths::default();
        cgroup.lines().for_each(|l| own.take(l.as_bytes()));
        let mut hierarchies = Hierarchies::default();
        let exists = |g: &Cgroup| there.contains(&g.dir.as_c_str().to_str().unwrap());
        mountinfo.lines().for_each(|l| hierarchies.take(l.as_bytes(), &own, &exists));
        [hierarchies.v1.best(), hierarchies.v2.best()]
            .map(|g| g.map(|g| (g.version, g.dir.as_c_str().to_str().unwrap().into(), g.depth)))
    }

    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:17 - cgroup cgroup rw,memory\n\
        34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";
    const V2: &str =
        "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot";

    #[test]
    fn v2_on_a_host() {
        let dir = "/sys/fs/cgroup/user.slice/user-1000.slice/a:b.scope";
        let [v1, v2] = find("0::/user.slice/user-1000.slice/a:b.scope", V2, &[dir]);
        assert_eq!(v1, None);
        assert_eq!(v2, Some((Version::V2, dir.into(), 3)));
    }

    #[test]
    fn v2_root_has_no_trailing_slash() {
        let [_, v2] = find("0::/", V2, &["/sys/fs/cgroup"]);
        assert_eq!(v2, Some((Version::V2, "/sys/fs/cgroup".into(), 0)));
    }

    #[test]
    fn v1_and_hybrid() {
        let unified = "42 31 0:39 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let (memory, none) = ("/sys/fs/cgroup/memory/system.slice/x.service", "/sys/fs/cgroup/unified");
        let own = "5:cpu,memory:/system.slice/x.service\n0::/system.slice/x.service";
        let both = std::format!("{V1}\n{unified}");
        let [v1, v2] = find(own, &both, &[memory, none]);
        assert_eq!(v1, Some((Version::V1, memory.into(), 2)));
        // The own unified group is not to be seen: the mount's root stands in.
        assert_eq!(v2, Some((Version::V2, none.into(), 0)));
    }

    #[test]
    fn docker_v1_sees_its_group_as_the_mount_root() {
        let own = "9:memory:/docker/0123abc\n1:name=systemd:/docker/0123abc";
        let mounts = "700 690 0:32 /docker/0123abc /sys/fs/cgroup/memory ro master:17 - cgroup cgroup rw,memory";
        let [v1, _] = find(own, mounts, &["/sys/fs/cgroup/memory"]);
        assert_eq!(v1, Some((Version::V1, "/sys/fs/cgroup/memory".into(), 0)));
        let nested = find("9:memory:/docker/0123abc/job", mounts, &["/sys/fs/cgroup/memory/job"]);
        assert_eq!(nested[0], Some((Version::V1, "/sys/fs/cgroup/memory/job".into(), 1)));
        // A sibling whose name merely begins alike is not inside.
        let [other, _] = find("9:memory:/docker/0123abcdef", mounts, &["/sys/fs/cgroup/memory"]);
        assert_eq!(other.unwrap().2, 0);
    }

    #[test]
    fn nested_namespaces_fall_back_to_the_mount_root() {
        let above = "700 690 0:32 /../../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        for own in ["0::/", "0::/../../other", "0::/a/.."] {
            let [_, v2] = find(own, above, &["/sys/fs/cgroup"]);
            assert_eq!(v2, Some((Version::V2, "/sys/fs/cgroup".into(), 0)), "{own}");
        }
    }

    #[test]
    fn blanks_in_mount_points() {
        let [_, v2] = find("0::/g", r"1 2 0:3 / /mnt/a\040b\134c rw - cgroup2 none rw", &[r"/mnt/a b\c/g"]);
        assert_eq!(v2.unwrap().1, r"/mnt/a b\c/g");
    }

    #[test]
    fn nothing_mounted_nothing_found() {
        assert_eq!(find("0::/x", "21 1 8:1 / / rw - ext4 /dev/vda1 rw", &["/"]), [None, None]);
        assert_eq!(find("", V2, &["/sys/fs/cgroup"]), [None, None]);
    }

    #[test]
    fn a_move_is_seen_and_nothing_else() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let path_c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let digest_of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let file = fd::open(&path_c, fd::O_RDONLY).unwrap();
            let digest = digest(file);
            fd::close(file).unwrap();
            digest.unwrap()
        };
        let here = digest_of("9:cpu:/a\n4:cpuset,memory:/a\n0::/a\n");
        assert_eq!(here, digest_of("9:cpu:/elsewhere\n4:cpuset,memory:/a\n0::/a\n"));
        assert_ne!(here, digest_of("9:cpu:/a\n4:cpuset,memory:/b\n0::/a\n"));
        assert_ne!(here, digest_of("9:cpu:/a\n4:cpuset,memory:/a\n0::/b\n"));
        assert_eq!(digest(-1), None);
    }

    #[test]
    fn this_process_has_a_place() {
        let here = Membership::find();
        if let Some(group) = here.memory.or(here.unified) {
            let dir = GroupDir::open(&group).unwrap();
            let file = dir.open_file(0, b"cgroup.procs", fd::O_RDONLY).unwrap();
            fd::close(file).unwrap();
            assert_eq!(dir.open_file(0, b"no_such", fd::O_RDONLY), Err(Errno::ENOENT));
            assert_eq!(dir.open_file(400, b"x", fd::O_RDONLY), Err(Errno::ENAMETOOLONG));
            dir.close();
        } else {
            weir_testing::skip!("no control group is mounted");
        }
    }

    #[test]
    fn files_are_opened_once_and_again_once_they_are_taken_away() {
        let with_own_table = || {
            private_table().unwrap();
            open_once_and_again();
        };
        std::thread::spawn(with_own_table).join().unwrap();
    }

    fn open_once_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        let own = top.join("own");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("memory.max"), "1").unwrap();
        std::fs::write(top.join("memory.max"), "2").unwrap();
        let path = FixedPath::from_parts(&[own.to_str().unwrap().as_bytes()]).unwrap();
        let group = Cgroup { version: Version::V2, dir: path, depth: 1 };
        let (passing, mut keeping) = (GroupDir::open(&group).unwrap(), GroupDir::open(&group).unwrap());
        keeping.keep_files();
        let read = |dir: &GroupDir, up| dir.read_file(up, GroupFile::Max, &mut [0; 8]).map(<[u8]>::to_vec);
        let both = || [read(&passing, 0), read(&keeping, 0), read(&keeping, 1)];
        assert_eq!(both(), [Ok(b"1".to_vec()), Ok(b"1".to_vec()), Ok(b"2".to_vec())]);
        let inode = |dir: &std::path::Path| std::fs::metadata(dir).unwrap().ino();
        assert_eq!([0, 1, 0].map(|up| keeping.number(up)), [inode(&own), inode(top), inode(&own)]);
        // What is written anew is read, what has another file of the name is not: it is the open one.
        std::fs::write(top.join("memory.max"), "3").unwrap();
        std::fs::remove_file(own.join("memory.max")).unwrap();
        assert_eq!(both(), [Err(Errno::ENOENT), Ok(b"1".to_vec()), Ok(b"3".to_vec())]);
        // A group's file that was taken away can be read no more, like a descriptor that cannot be.
        let kept = &keeping.kept.as_ref().unwrap()[0][GroupFile::Max as usize];
        fd::close(kept.replace(fd::open(c"/", fd::O_RDONLY).unwrap())).unwrap();
        assert_eq!((read(&keeping, 0), kept.get()), (Err(Errno::ENOENT), -1));
        std::fs::write(own.join("memory.max"), "4").unwrap();
        assert_eq!(read(&keeping, 0), Ok(b"4".to_vec()));
        // Beyond the levels whose files are kept.
        assert!(keeping.read_file(KEPT_LEVELS, GroupFile::Max, &mut [0; 8]).is_err());
        [passing, keeping].into_iter().for_each(GroupDir::close);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(line: Vec<u8>, own: Vec<u8>, text in r"[0-9:/\\. -]{0,80}cgroup2? x (memory)?") {
            let mut paths = OwnPaths::default();
            paths.take(&own);
            paths.take(b"0::/a");
            let mut hierarchies = Hierarchies::default();
            hierarchies.take(&line, &paths, &|_| true);
            hierarchies.take(text.as_bytes(), &paths, &|_| true);
        }
    }
}
