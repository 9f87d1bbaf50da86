//! Object files as the profile reads them: any bytes, and ELF files whose sections are repeated, compressed and put onto each
//! other. A child reads them, within bounds that the kernel holds. Whatever comes of it, each place that was asked for has its
//! answer or none, and no name is longer than is shown.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the command uses more of it")]

#[path = "../../crates/weir-cli/src/base/mod.rs"]
mod base;
#[path = "object_file/elf.rs"]
mod elf;
#[path = "object_file/processes.rs"]
mod processes;
#[path = "object_file/profile.rs"]
mod profile;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use profile::symbols::files::Files;
use profile::symbols::mappings::Mapping;
use profile::symbols::object_file::{Budget, look_up};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

/// Bytes of a name that is shown at most.
const NAME: usize = 4096;

fuzz_target!(|data: &[u8]| {
    // What is no such input is none.
    let _ = look(&mut Unstructured::new(data));
});

fn look(u: &mut Unstructured) -> Result<()> {
    let mut addresses: Vec<u64> = vec![0, 1, u64::MAX];
    for _ in 0..u.int_in_range(0..=4u8)? {
        addresses.push(if u.arbitrary()? { u.arbitrary()? } else { u.int_in_range(0..=0x10_000)? });
    }
    let bytes = if u.ratio(1, 8)? { u.take_rest_of() } else { elf::file(u)? };
    let file = stored(&bytes);
    // The child has none of this process's descriptors.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
    let mapping = Mapping { path, ..Mapping::default() };
    let found = look_up(&mapping, Files::Own, &addresses, &mut Budget::new());
    assert_eq!(found.places.len(), addresses.len());
    for frame in found.places.iter().flatten().flat_map(|place| &place.frames) {
        let all = [&frame.function, &frame.symbol, &frame.file];
        assert!(all.iter().all(|text| text.len() <= NAME) && !frame.function.is_empty(), "{frame:?}");
        assert!(frame.place().len() < NAME + 16);
    }
    Ok(())
}

trait Rest {
    fn take_rest_of(&mut self) -> Vec<u8>;
}

impl Rest for Unstructured<'_> {
    fn take_rest_of(&mut self) -> Vec<u8> {
        self.bytes(self.len()).unwrap_or_default().into()
    }
}

/// A file in memory with these bytes.
fn stored(bytes: &[u8]) -> File {
    let made = rustix::fs::memfd_create("object", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(made);
    file.write_all(bytes).expect("memory");
    file
}
