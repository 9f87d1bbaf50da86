//! A process whose page of statistics says for ever that a table is being written. This one feigns such a page.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use std::ffi::c_void;
use std::mem::{offset_of, size_of_val};
use std::sync::atomic::Ordering::Relaxed;
use weir_cli::survey::Survey;
use weir_core::telemetry::stats::{MAGIC, PAGE_BYTES, Stats, VERSION};

#[test]
fn it_is_read_where_it_lay_and_not_searched_at_each_look() {
    let file = memfd_create("weir-page", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, PAGE_BYTES as u64).unwrap();
    let (both, none) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
    // SAFETY: a new mapping, wherever the kernel likes.
    let page = unsafe { mmap(none, PAGE_BYTES, both, MapFlags::SHARED, &file, 0) }.unwrap();
    feign(page);
    let (mut survey, own) = (Survey::default(), std::process::id() as i32);
    let found = survey.look();
    assert!(found.processes[&own].costs.is_empty(), "{found:?}");
    // Who searches now finds no name of Weir's.
    // SAFETY: it takes the place of the mapping made above, which nothing else uses.
    unsafe { mmap_anonymous(page, PAGE_BYTES, both, MapFlags::PRIVATE | MapFlags::FIXED) }.unwrap();
    feign(page);
    let found = survey.look();
    assert!(found.processes.contains_key(&own), "{found:?}");
}

/// Makes a page of the memory there, of which the curve is being written.
fn feign(page: *mut c_void) {
    // SAFETY: the test's own mapping of zeros, of so many bytes, made of atomics for which any bytes are a value.
    let stats = unsafe { &*page.cast::<Stats>() };
    stats.magic.store(MAGIC, Relaxed);
    stats.version.store(VERSION, Relaxed);
    let begun = offset_of!(Stats, costs) + size_of_val(&stats.costs) - size_of::<u64>();
    // SAFETY: the last word of the table, within the mapping.
    unsafe { page.cast::<u8>().add(begun).cast::<u64>().write(1) };
}
