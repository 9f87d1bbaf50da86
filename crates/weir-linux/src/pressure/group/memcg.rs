//! A memory control group's limits, use and events.

use super::cgroup::{GroupDir, GroupFile, Version};
use crate::os::fd;
use crate::os::file::text::{number, number_after};
use crate::os::syscall::{Errno, Result};
use weir_core::base::level::Level;
use weir_core::policy::watermarks::counted_for_headroom;

/// Above this a v1 limit means "none": the kernel writes the largest multiple of a page that fits.
const V1_UNLIMITED: u64 = 1 << 62;

/// A limit and what is used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The limit, bytes.
    pub limit: u64,
    /// Use that the kernel cannot take back by dropping clean file pages which were not used lately, bytes.
    pub working_set: u64,
    /// How many levels above the own group the limit is.
    pub up: usize,
}

impl Room {
    /// Bytes left below the limit.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.working_set)
    }
}

/// Limits that hold for a group: the lowest of its own and its visible ancestors'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Hard limit (`memory.max`, `memory.limit_in_bytes`), bytes.
    pub max: Option<u64>,
    /// Throttling limit (`memory.high`), bytes; v1 has none.
    pub high: Option<u64>,
}

impl Limits {
    /// The lower of the two.
    pub fn lowest(self) -> Option<u64> {
        lower(self.max, self.high)
    }
}

/// The limits in force.
pub fn effective_limits(dir: &GroupDir) -> Limits {
    let mut limits = Limits::default();
    for up in 0..=dir.depth {
        let own = own_limits(dir, up);
        limits.max = lower(limits.max, own.max);
        limits.high = lower(limits.high, own.high);
    }
    limits
}

/// The limits of one level. At its own level v1 also gives the lowest limit of the ancestors that are out of sight.
fn own_limits(dir: &GroupDir, up: usize) -> Limits {
    let mut buf = [0u8; 32];
    let mut read = |file| dir.read_file(up, file, &mut buf).ok().and_then(number);
    match dir.version {
        Version::V2 => Limits { max: read(GroupFile::Max), high: read(GroupFile::High) },
        Version::V1 => {
            let own = read(GroupFile::Max);
            let above = (up == 0).then(|| stat_value(dir, up, b"hierarchical_memory_limit ")).flatten();
            Limits { max: lower(own, above).filter(|&l| l < V1_UNLIMITED), high: None }
        }
    }
}

fn lower(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// Bytes now charged to the level.
pub fn usage(dir: &GroupDir, up: usize) -> Option<u64> {
    let mut buf = [0u8; 32];
    number(dir.read_file(up, GroupFile::Usage, &mut buf).ok()?)
}

/// Reads all that [`rooms`] may come to read of the group itself, and of ancestors that have a limit. With files that are kept
/// open, no later reading of these opens one.
pub fn read_ahead(dir: &GroupDir) {
    for up in 0..=dir.depth {
        let limits = own_limits(dir, up);
        if up == 0 || limits.lowest().is_some() {
            let _ = (usage(dir, up), stat_value(dir, up, b""), dir.number(up));
        }
    }
}

/// One line of `memory.stat`, by its name with the blank after it.
fn stat_value(dir: &GroupDir, up: usize, key: &[u8]) -> Option<u64> {
    let mut buf = [0u8; 4096];
    number_after(dir.read_file(up, GroupFile::Stat, &mut buf).ok()?, key)
}

/// The level that is nearest to its limit, as a part of that limit; `None` where nothing limits the group.
///
/// Use counts without inactive file pages, as Kubernetes' "working set" does. A group that reads files fills up to its
/// limit with them, and loses nothing when they go. They are only looked up for levels that `percent_near` percent or
/// less is left of, since reading `memory.stat` costs more than all the rest.
pub fn tightest_room(dir: &GroupDir, percent_near: u64) -> Option<Room> {
    // left/limit compared without division.
    rooms(dir, percent_near).min_by(|a, b| {
        let part = |x: &Room, y: &Room| u128::from(x.left()) * u128::from(y.limit);
        part(a, b).cmp(&part(b, a))
    })
}

/// The levels that have a limit, from the own group upwards; clean file pages as [`tightest_room`] has them.
pub fn rooms(dir: &GroupDir, percent_near: u64) -> impl Iterator<Item = Room> {
    (0..=dir.depth).filter_map(move |up| {
        let limits = own_limits(dir, up);
        // Of a limit of 0, which asks that all be reclaimed, nothing could be a part.
        let limit = limits.lowest()?.max(1);
        let used = usage(dir, up)?;
        let mut room = Room { limit, working_set: used, up };
        if is_near(room.left(), limit, percent_near) {
            let key: &[u8] = match dir.version {
                Version::V2 => b"inactive_file ",
                Version::V1 => b"total_inactive_file ",
            };
            room.working_set = used.saturating_sub(stat_value(dir, up, key).unwrap_or(0));
        }
        Some(room)
    })
}

/// Whether `left` is less than `percent` of `limit`.
pub fn is_near(left: u64, limit: u64, percent: u64) -> bool {
    u128::from(left) * 100 < u128::from(limit) * u128::from(percent)
}

/// How near to its limit something is: [`Level::Some`] below `percent` of what counts of the limit left, [`Level::Severe`] below
/// half of that.
pub fn level_of(left: u64, limit: u64, percent: u64) -> Level {
    let limit = counted_for_headroom(limit);
    if !is_near(left, limit, percent) {
        Level::None
    } else if is_near(left.saturating_mul(2), limit, percent) {
        Level::Severe
    } else {
        Level::Some
    }
}

/// Counters of `memory.events` (v2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Times a member was throttled at `memory.high`.
    pub high: u64,
    /// Times use was about to go over `memory.max`.
    pub max: u64,
    /// Times an allocation was about to fail, or the killer ran.
    pub oom: u64,
}

impl EventCounts {
    /// Reads the file's text; a counter that is missing is 0.
    pub fn parse(text: &[u8]) -> Self {
        let value = |key: &[u8]| number_after(text, key).unwrap_or(0);
        let oom = value(b"oom ").saturating_add(value(b"oom_kill "));
        Self { high: value(b"high "), max: value(b"max "), oom }
    }

    /// Reads the open file from its beginning. `ENODATA`: the group was removed.
    pub fn read(file: i32) -> Result<Self> {
        let mut buf = [0u8; 512];
        let len = fd::pread(file, &mut buf, 0)?;
        if len == 0 {
            return Err(Errno::ENODATA);
        }
        Ok(Self::parse(&buf[..len]))
    }

    /// How bad it is that the counters have come from `before` to these. A group at its hard limit may only be full of
    /// file pages, so `max` alone is not severe. The room that is left is read besides. A kill is severe.
    pub fn level_since(self, before: Self) -> Level {
        if self.oom > before.oom {
            Level::Severe
        } else if self.high > before.high || self.max > before.max {
            Level::Some
        } else {
            Level::None
        }
    }
}

#[cfg(test)]
pub(in crate::pressure) mod tests {
    use super::*;
    use crate::os::file::path::FixedPath;
    use crate::pressure::group::cgroup::Cgroup;
    use proptest::prelude::*;
    use std::fs;
    use std::vec::Vec;
    use weir_core::base::units::Pages;
    use weir_core::policy::watermarks::Marks;

    /// A tree of ordinary directories with a group's files.
    pub(in crate::pressure) fn tree(version: Version, levels: &[&[(&str, &str)]]) -> (tempfile::TempDir, GroupDir) {
        let top = tempfile::tempdir().unwrap();
        let mut dir = top.path().to_owned();
        for (depth, files) in levels.iter().enumerate() {
            if depth > 0 {
                dir.push("g");
            }
            fs::create_dir_all(&dir).unwrap();
            files.iter().for_each(|(file, text)| fs::write(dir.join(file), text).unwrap());
        }
        let path = FixedPath::from_parts(&[dir.to_str().unwrap().as_bytes()]).unwrap();
        let group = GroupDir::open(&Cgroup { version, dir: path, depth: levels.len() - 1 }).unwrap();
        (top, group)
    }

    #[test]
    fn v2_limits_are_the_lowest_above() {
        let (top, dir) = tree(
            Version::V2,
            &[
                &[], // the root has no such files
                &[("memory.max", "1000\n"), ("memory.high", "max\n"), ("memory.current", "950\n")],
                &[("memory.max", "max\n"), ("memory.high", "2000\n"), ("memory.current", "50\n")],
            ],
        );
        let limits = effective_limits(&dir);
        assert_eq!((limits, limits.lowest()), (Limits { max: Some(1000), high: Some(2000) }, Some(1000)));
        let room = tightest_room(&dir, 10).unwrap();
        assert_eq!(room, Room { limit: 1000, working_set: 950, up: 1 });
        // Clean file pages do not count, where it is worth the look.
        fs::write(top.path().join("g/memory.stat"), "anon 5\ninactive_file 900\n").unwrap();
        assert_eq!(tightest_room(&dir, 10).unwrap().left(), 950);
        assert_eq!(tightest_room(&dir, 1).unwrap().left(), 50);
    }

    /// `memory.high` of 0 has the kernel reclaim all that it can.
    #[test]
    fn a_limit_of_0_is_one() {
        let level: &[_] = &[("memory.max", "max\n"), ("memory.high", "0\n"), ("memory.current", "950\n")];
        let (_top, dir) = tree(Version::V2, &[&[], level]);
        let room = tightest_room(&dir, 10).unwrap();
        assert_eq!((room.limit, room.left()), (1, 0));
        assert_eq!(level_of(room.left(), room.limit, 10), Level::Severe);
    }

    #[test]
    fn v1_knows_limits_out_of_sight_and_the_word_for_none() {
        let none = "9223372036854771712\n";
        let stat = "cache 1\nhierarchical_memory_limit 5000\ntotal_inactive_file 100\n";
        let level: &[_] =
            &[("memory.limit_in_bytes", none), ("memory.usage_in_bytes", "4900\n"), ("memory.stat", stat)];
        let (_top, dir) = tree(Version::V1, &[level]);
        assert_eq!(effective_limits(&dir), Limits { max: Some(5000), high: None });
        assert_eq!(tightest_room(&dir, 10), Some(Room { limit: 5000, working_set: 4800, up: 0 }));
        let (_top, dir) = tree(Version::V1, &[&[("memory.limit_in_bytes", none)]]);
        assert_eq!(effective_limits(&dir), Limits::default());
        assert_eq!(tightest_room(&dir, 10), None);
    }

    #[test]
    fn events_and_nearness() {
        let text = b"low 0\nhigh 12\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(EventCounts::parse(text), EventCounts { high: 12, max: 3, oom: 2 });
        assert!(is_near(4, 100, 5) && !is_near(5, 100, 5) && !is_near(0, 100, 0));
        assert!(is_near(0, u64::MAX, 50));
    }

    #[test]
    fn pressure_begins_where_the_marks_let_caches_grow_no_more() {
        const GIB: u64 = 1 << 30;
        for limit in [1, 40, 41, 64, 256, 1024].map(|gib| gib * GIB) {
            let high = Marks::of(Pages::in_bytes(limit as usize), 250).high.bytes().0 as u64;
            assert_eq!(level_of(high, limit, 5), Level::None, "{} GiB", limit / GIB);
            assert_eq!(level_of(high / 3, limit, 5), Level::Severe, "{} GiB", limit / GIB);
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = EventCounts::parse(&text);
        }
    }
}
