//! Object files as the profile reads them: any bytes, and ELF files whose sections are repeated, compressed and put onto each
//! other. What is read of one stays within its one budget of memory, the stack and time; and nothing panics.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the command uses more of it")]

#[path = "../../crates/weir-cli/src/base/mod.rs"]
mod base;
#[path = "../../crates/weir-cli/src/profile/budget.rs"]
mod budget;
#[path = "object_file/elf.rs"]
mod elf;
#[path = "../../crates/weir-cli/src/profile/files.rs"]
mod files;
#[path = "../../crates/weir-cli/src/profile/function_name.rs"]
mod function_name;
#[path = "../../crates/weir-cli/src/profile/mappings.rs"]
mod mappings;
#[path = "../../crates/weir-cli/src/profile/meter.rs"]
mod meter;
#[path = "../../crates/weir-cli/src/profile/object_file.rs"]
mod object_file;
#[path = "../../crates/weir-cli/src/profile/section.rs"]
mod section;

use arbitrary::{Result, Unstructured};
use base::counted::{Counted, held};
use files::Files;
use libfuzzer_sys::fuzz_target;
use object_file::ObjectFile;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::fs::File;
use std::io::Write;

/// The budget of files as small as these, bytes.
const BUDGET: isize = 16 << 20;
/// What a file takes beside that, bytes: the tables of what was read of it, and its frames.
const BESIDE: isize = 1 << 20;
/// Addresses that are looked up.
const ADDRESSES: usize = 16;
/// Bytes of a name that is shown at most.
const NAME: usize = 4096;

#[global_allocator]
static HEAP: Most = Most;

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
    drop(bytes);
    let before = begin();
    let Some(object) = ObjectFile::read(file, Files::Own) else { return Ok(()) };
    let mapped: Vec<u64> = addresses.iter().filter_map(|&offset| object.address_of(offset)).collect();
    addresses.extend(mapped);
    for &address in addresses.iter().take(ADDRESSES) {
        let frames = object.frames(address);
        for frame in &frames {
            let all = [&frame.function, &frame.symbol, &frame.file];
            assert!(all.iter().all(|text| text.len() <= NAME) && !frame.function.is_empty(), "{frame:?}");
            assert!(frame.place().len() < NAME + 16);
        }
    }
    let taken = MOST.get() - before;
    assert!(taken <= BUDGET + BESIDE, "{taken} bytes were taken; partial: {}", object.is_partial());
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

thread_local! {
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// What is held now, from which the most is counted.
fn begin() -> isize {
    MOST.set(held());
    held()
}

/// The product's own count, and the most that it was.
struct Most;

fn note(block: *mut u8) -> *mut u8 {
    MOST.set(MOST.get().max(held()));
    block
}

// SAFETY: all is done by the product's allocator.
unsafe impl GlobalAlloc for Most {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        note(unsafe { Counted.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        note(unsafe { Counted.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Counted.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it is moved, the old one is there as well.
        MOST.set(MOST.get().max(held() + size as isize));
        // SAFETY: the caller's promise.
        note(unsafe { Counted.realloc(block, layout, size) })
    }
}
