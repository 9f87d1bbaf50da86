//! The information that a PVH loader passes to the kernel: the map of memory and the command line.

use weir_core::base::run::Run;

/// First word of the start information ("xEn3" with the top bit set).
const MAGIC: u32 = 0x336e_c578;
/// The version that added the memory map.
const WITH_MAP: u32 = 1;
/// Type of ordinary memory in the map.
const RAM: u32 = 1;
/// Longest command line that is looked at.
const COMMAND_LINE: usize = 4096;

/// The start information, as the loader lays it out.
#[repr(C)]
pub struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    acpi: u64,
    map: u64,
    map_entries: u32,
    reserved: u32,
}

#[repr(C)]
struct MapEntry {
    addr: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

impl StartInfo {
    /// The start information at `at`, if it is there and new enough.
    ///
    /// # Safety
    /// `at` is what a PVH loader passed, its addresses are mapped where they say, and nobody changes any of it.
    pub unsafe fn at<'a>(at: *const Self) -> Option<&'a Self> {
        // SAFETY: as the caller promises.
        let info = unsafe { at.as_ref() }?;
        (info.magic == MAGIC && info.version >= WITH_MAP && info.map != 0).then_some(info)
    }

    /// Ordinary memory.
    pub fn ram(&self) -> impl Iterator<Item = Run> {
        // SAFETY: the loader put that many entries there (see `at`).
        let map = unsafe { core::slice::from_raw_parts(self.map as *const MapEntry, self.map_entries as usize) };
        let ram = map.iter().filter(|entry| entry.kind == RAM);
        ram.map(|entry| Run { addr: entry.addr as usize, len: entry.len as usize })
    }

    /// The command line; empty if there is none.
    pub fn command_line(&self) -> &[u8] {
        if self.command_line == 0 {
            return &[];
        }
        let text = self.command_line as *const u8;
        // SAFETY: the loader ended the line with a zero byte (see `at`); nothing behind that is read.
        let len = (0..COMMAND_LINE).take_while(|&i| unsafe { *text.add(i) } != 0).count();
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(text, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_command_line_are_read() {
        let entry = |addr, len, kind| MapEntry { addr, len, kind, reserved: 0 };
        let map = [entry(0, 0x9_fc00, RAM), entry(0x9_fc00, 0x400, 2), entry(0x10_0000, 0x1ff0_0000, RAM)];
        let line = b"touch=384 step=1\0more\0";
        let info = |magic, version| StartInfo {
            magic,
            version,
            flags: 0,
            modules: 0,
            module_list: 0,
            command_line: line.as_ptr() as u64,
            acpi: 0,
            map: map.as_ptr() as u64,
            map_entries: map.len() as u32,
            reserved: 0,
        };
        let good = info(MAGIC, 1);
        // SAFETY: everything it points to is this test's.
        let read = unsafe { StartInfo::at(&good) }.unwrap();
        let ram: Vec<_> = read.ram().collect();
        assert_eq!(ram, [Run { addr: 0, len: 0x9_fc00 }, Run { addr: 0x10_0000, len: 0x1ff0_0000 }]);
        assert_eq!(read.command_line(), b"touch=384 step=1");
        for bad in [info(MAGIC, 0), info(1, 1)] {
            // SAFETY: as above.
            assert!(unsafe { StartInfo::at(&bad) }.is_none());
        }
        // SAFETY: null is allowed.
        assert!(unsafe { StartInfo::at(core::ptr::null()) }.is_none());
    }
}
