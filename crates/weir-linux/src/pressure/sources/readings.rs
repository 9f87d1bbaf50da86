//! Readings at intervals: room below limits, the process's own resident set, and stalls.

use super::room;
use crate::os::fd;
use crate::os::file::own::OwnFile;
use crate::os::file::text::{number, words};
use crate::os::page;
use crate::pressure::events::Source;
use crate::pressure::group::cgroup::{GroupDir, GroupFile};
use crate::pressure::group::memcg::{level_of, rooms};
use crate::pressure::psi::{Meter, Threshold, Totals};
use core::ffi::CStr;
use weir_core::base::level::Level;
use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::budget::Room;
use weir_core::telemetry::tunables::Tunables;

/// The readings and what they need kept.
pub struct Readings {
    /// The thread's `statm`, kept open so that neither a `chroot` nor a sandbox hides it; -1 if it is opened each time.
    statm: i32,
    /// `/proc/pressure/memory`, alike.
    pressure: i32,
    /// `/proc/meminfo`, alike.
    meminfo: i32,
    system: Meter,
    group: Meter,
    target: Option<Target>,
}

/// The most that a client of the control channel wants resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    bytes: u64,
    /// Readings at which more was.
    missed: u32,
}

impl Default for Readings {
    fn default() -> Self {
        Self::new()
    }
}

impl Readings {
    /// Nothing open, nothing read.
    pub const fn new() -> Self {
        Self { statm: -1, pressure: -1, meminfo: -1, system: Meter::new(), group: Meter::new(), target: None }
    }

    /// Opens what is to be kept open. Only for a thread with a descriptor table of its own.
    pub fn keep_open(&mut self) {
        self.statm = OwnFile::STATM.open().unwrap_or(-1);
        self.pressure = fd::open(c"/proc/pressure/memory", fd::O_RDONLY).unwrap_or(-1);
        self.meminfo = fd::open(c"/proc/meminfo", fd::O_RDONLY).unwrap_or(-1);
    }

    /// The process is in another group, whose stalls so far are not its own.
    pub(super) fn forget_group(&mut self) {
        self.group = Meter::new();
    }

    /// Near its own limit?
    pub fn limit(&self, tunables: &Tunables) -> Level {
        let limit = tunables.limit.get();
        if limit == 0 {
            return Level::None;
        }
        let resident = self.resident().unwrap_or(0);
        level_of(limit.saturating_sub(resident), limit, tunables.headroom_percent.get())
    }

    /// Bytes of this process that are resident.
    pub fn resident(&self) -> Option<u64> {
        let mut buf = [0u8; 128];
        parse_resident(match self.statm {
            ..0 => OwnFile::STATM.read(&mut buf).ok()?,
            kept => read_again(kept, &mut buf)?,
        })
    }

    /// The room below the process's own limit.
    pub fn limit_room(&self, tunables: &Tunables) -> Option<Room> {
        let limit = tunables.limit.get();
        (limit != 0).then(|| Room::own(limit, self.resident().unwrap_or(0)))
    }

    /// Sets the target; whether it is another one than before.
    pub(super) fn set_target(&mut self, bytes: Option<u64>) -> bool {
        let before = self.target.map(|target| target.bytes);
        if before != bytes {
            self.target = bytes.map(|bytes| Target { bytes, missed: 0 });
        }
        before != bytes
    }

    /// Whether there is a target.
    pub(super) fn has_target(&self) -> bool {
        self.target.is_some()
    }

    /// Above the target? The first reading is answered gently: what is idle goes, and caches begin to.
    pub(super) fn target(&mut self) -> Level {
        let resident = self.resident().unwrap_or(0);
        let Some(target) = self.target.as_mut().filter(|target| resident > target.bytes) else { return Level::None };
        target.missed = target.missed.saturating_add(1);
        if target.missed == 1 { Level::Some } else { Level::Severe }
    }

    /// The room below a limit to which the balancer keeps by having no more resident than the target.
    pub(super) fn target_room(&self, scale: u64) -> Option<Room> {
        let pages = Marks::managed_for(Pages::in_bytes(self.target?.bytes as usize), scale as usize);
        Some(Room::own(pages.bytes().0 as u64, self.resident().unwrap_or(0)))
    }

    /// The room that the machine has without swapping.
    pub fn machine_room(&self) -> Option<Room> {
        // The two lines are among the first three of some fifty.
        let mut buf = [0u8; 512];
        room::of_machine(read_kept(self.meminfo, c"/proc/meminfo", &mut buf)?)
    }

    /// How near a limit of the group or an ancestor is: the nearest counts.
    pub fn headroom(group: &GroupDir, tunables: &Tunables) -> Level {
        let percent = tunables.headroom_percent.get();
        let levels = rooms(group, percent).map(|room| level_of(room.left(), room.limit, percent));
        levels.max().unwrap_or(Level::None)
    }

    /// Stalls since the last reading, of the system and of the own group if it has a pressure file.
    pub fn stalls(
        &mut self,
        group: Option<&GroupDir>,
        thresholds: (Threshold, Threshold),
        now_ns: u64,
    ) -> [(Level, Source); 2] {
        let mut buf = [0u8; 256];
        let system = read_kept(self.pressure, c"/proc/pressure/memory", &mut buf).and_then(Totals::parse);
        let group = group.and_then(|dir| Totals::parse(dir.read_file(0, GroupFile::Pressure, &mut buf).ok()?));
        let judge = |meter: &mut Meter, totals: Option<Totals>| {
            let over = totals.map(|totals| meter.exceeded(totals, now_ns, thresholds.0, thresholds.1));
            over.map_or(Level::None, stall_level)
        };
        [(judge(&mut self.system, system), Source::SystemStall), (judge(&mut self.group, group), Source::GroupStall)]
    }
}

/// Reads a file that may be kept open.
fn read_kept<'a>(file: i32, path: &CStr, buf: &'a mut [u8]) -> Option<&'a [u8]> {
    if file < 0 { fd::read_file(path, buf).ok() } else { read_again(file, buf) }
}

fn read_again(file: i32, buf: &mut [u8]) -> Option<&[u8]> {
    let len = fd::pread(file, buf, 0).ok()?;
    Some(&buf[..len])
}

fn stall_level((some, full): (bool, bool)) -> Level {
    match (some, full) {
        (_, true) => Level::Severe,
        (true, false) => Level::Some,
        (false, false) => Level::None,
    }
}

/// The second number of `statm`, which counts pages, in bytes.
fn parse_resident(text: &[u8]) -> Option<u64> {
    number(words(text).nth(1)?)?.checked_mul(page::bytes() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn the_own_limit() {
        let (tunables, mut readings) = (Tunables::new(), Readings::new());
        assert_eq!(readings.limit(&tunables), Level::None);
        let resident = readings.resident().unwrap();
        assert!(resident > 100_000, "{resident}");
        tunables.limit.set(resident / 2);
        assert_eq!(readings.limit(&tunables), Level::Severe);
        readings.keep_open();
        tunables.limit.set(resident * 100);
        assert_eq!(readings.limit(&tunables), Level::None);
        fd::close(readings.statm).unwrap();
        let _ = fd::close(readings.pressure);
        let _ = fd::close(readings.meminfo);
    }

    #[test]
    fn a_target_is_answered_gently_first_and_gone_with_the_client() {
        let mut readings = Readings::new();
        assert_eq!((readings.target(), readings.target_room(250)), (Level::None, None));
        let resident = readings.resident().unwrap();
        assert!(readings.set_target(Some(resident / 2)));
        assert_eq!(
            [readings.target(), readings.target(), readings.target()],
            [Level::Some, Level::Severe, Level::Severe]
        );
        assert!(!readings.set_target(Some(resident / 2)), "it is the same");
        assert_eq!(readings.target(), Level::Severe);
        let room = readings.target_room(250).unwrap();
        assert!(room.capacity > resident / 2 && room.capacity < resident, "{room:?} of {resident}");
        assert!(readings.set_target(Some(resident * 100)));
        assert_eq!(readings.target(), Level::None);
        assert!(readings.set_target(None) && !readings.has_target());
    }

    #[test]
    fn statm() {
        assert_eq!(parse_resident(b"100 7 3 1 0 2 0\n"), Some(7 * 4096));
        assert_eq!(parse_resident(b"100"), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = parse_resident(&text);
        }
    }
}
