//! What the environment says: parameters (`WEIR_` and a tunable's name), the statistics file, systemd's watch.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use linux_raw_sys::general::{O_CLOEXEC, O_RDWR};
use weir_core::stats::{MAGIC, PAGE_BYTES, VERSION};
use weir_core::tunables::{SetError, TABLE};

use crate::linux::{STATS, TUNABLES};
use crate::message::Line;
use crate::os::mman::{self, MAP_SHARED, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE};
use crate::os::pressure_watch::Request;
use crate::os::{fd, process};

/// Pages in a statistics file, the first of which counts those taken.
const SLOTS: u64 = 4096;

static STATS_PATH: Kept = Kept::new();
static WATCH: Kept = Kept::new();
static WATCH_WRITE: Kept = Kept::new();

/// A value of the environment's, copied: programs that set their process title write over the original.
struct Kept {
    text: UnsafeCell<[u8; 512]>,
    set: AtomicBool,
}

// SAFETY: written once, before `set` and before there is a second thread; only read after.
unsafe impl Sync for Kept {}

impl Kept {
    const fn new() -> Self {
        Self { text: UnsafeCell::new([0; 512]), set: AtomicBool::new(false) }
    }

    /// Keeps `value` if it is not too long, the last byte staying zero.
    fn keep(&self, value: &[u8]) {
        // SAFETY: as for `Sync`.
        let text = unsafe { &mut *self.text.get() };
        if value.len() < text.len() && !self.set.load(Relaxed) {
            text[..value.len()].copy_from_slice(value);
            self.set.store(true, Release);
        }
    }

    fn get(&self) -> Option<&CStr> {
        // SAFETY: as for `Sync`.
        self.set.load(Acquire).then(|| unsafe { &*self.text.get() }).and_then(|t| CStr::from_bytes_until_nul(t).ok())
    }
}

/// Whose the page of counters is.
static SHARED: AtomicI32 = AtomicI32::new(PRIVATE);
const PRIVATE: i32 = 0;
const IN_FILE: i32 = 1;
/// A forked child's: its own, and to be in the file once it is worth it.
const UNCLAIMED: i32 = 2;

/// Reads the environment.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings that stay where they are.
pub(crate) unsafe fn read(envp: *const *const u8) {
    STATS.version.store(VERSION, Relaxed);
    STATS.pid.store(process::getpid(), Relaxed);
    STATS.magic.store(MAGIC, Relaxed);
    let mut at = envp;
    // SAFETY: as the caller promises.
    while let Some(entry) = unsafe { at.as_ref() }.filter(|p| !p.is_null()) {
        // SAFETY: a C string.
        setting(unsafe { CStr::from_ptr((*entry).cast()) });
        at = at.wrapping_add(1);
    }
    take_page();
}

fn setting(text: &CStr) {
    let bytes = text.to_bytes();
    let Some(equals) = bytes.iter().position(|&b| b == b'=') else { return };
    let (name, value) = (&bytes[..equals], &bytes[equals + 1..]);
    match name {
        b"WEIR_STATS" => STATS_PATH.keep(value),
        b"MEMORY_PRESSURE_WATCH" => WATCH.keep(value),
        b"MEMORY_PRESSURE_WRITE" => WATCH_WRITE.keep(value),
        _ => {
            if let Some(name) = name.strip_prefix(b"WEIR_") {
                tunable(name, value);
            }
        }
    }
}

fn tunable(name: &[u8], value: &[u8]) {
    let mut lower = [0u8; 40];
    let Some(lower) = lower.get_mut(..name.len()) else { return };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let mut line = Line::new();
    let shown = |bytes: &[u8]| -> Line {
        let mut text = Line::new();
        text.push(bytes);
        text
    };
    let said = match TUNABLES.set(lower, value) {
        // What is unknown is said by `unknown_settings`.
        Ok(()) | Err(SetError::Unknown) => return,
        Err(SetError::NotANumber) => core::fmt::Write::write_fmt(
            &mut line,
            format_args!("weir: WEIR_{}={}: not a number (such as 16 or 64M); ignored", shown(name), shown(value)),
        ),
        Err(SetError::OutOfRange) => {
            let range = TABLE.iter().find(|t| t.name.as_bytes() == &*lower).map_or((0, 0), |t| (t.min, t.max));
            core::fmt::Write::write_fmt(
                &mut line,
                format_args!("weir: WEIR_{}={}: not in {}..={}; ignored", shown(name), shown(value), range.0, range.1),
            )
        }
    };
    if said.is_ok() {
        line.say();
    }
}

/// The service manager's watch, as the environment asks for it.
pub(crate) fn watch_request() -> Request<'static> {
    Request::from_variables(WATCH.get().map(CStr::to_bytes), WATCH_WRITE.get().map(CStr::to_bytes))
}

/// Puts a page of the statistics file, if there is one, over the counters, so that they outlive the process.
fn take_page() {
    let Some(path) = STATS_PATH.get() else { return };
    let Ok(file) = fd::open(path, O_RDWR | O_CLOEXEC) else {
        return;
    };
    if let Some(slot) = next_slot(file) {
        map_page(file, slot);
    }
    let _ = fd::close(file);
}

/// Whether the counters outlive the process.
pub(crate) fn is_shared() -> bool {
    SHARED.load(Relaxed) == IN_FILE
}

fn next_slot(file: i32) -> Option<u64> {
    // SAFETY: without MAP_FIXED nothing that exists is replaced.
    let header = unsafe { mman::mmap(null_mut(), PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0).ok()? };
    // SAFETY: a page of the file, whose first word all processes use as an atomic counter.
    let slot = unsafe { (*header.cast::<AtomicU64>()).fetch_add(1, Relaxed) };
    // SAFETY: just mapped here.
    let _ = unsafe { mman::munmap(header, PAGE_BYTES) };
    (1..SLOTS).contains(&slot).then_some(slot)
}

fn map_page(file: i32, slot: u64) {
    let at = slot * PAGE_BYTES as u64;
    // A page that the file system has no room for would end the process at its first touch.
    if fd::fallocate(file, at, PAGE_BYTES as u64).is_err() {
        return;
    }
    // SAFETY: without MAP_FIXED nothing that exists is replaced.
    let page = unsafe { mman::mmap(null_mut(), PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, at) };
    if page.is_ok_and(put_over_counters) {
        SHARED.store(IN_FILE, Relaxed);
    }
}

/// Makes a fresh page, mapped elsewhere, the page of the counters, which it begins as a copy of.
fn put_over_counters(page: *mut u8) -> bool {
    let counters = (&raw const STATS).cast_mut().cast::<u8>();
    // SAFETY: the counters are a page, which is copied to the fresh one and then replaced by it: the same words for all
    // who hold a reference. A count that another thread makes in between is lost, and no more.
    unsafe {
        core::ptr::copy_nonoverlapping(counters.cast::<u64>(), page.cast::<u64>(), PAGE_BYTES / 8);
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        let moved = mman::mremap(page, PAGE_BYTES, PAGE_BYTES, flags, counters).is_ok();
        if !moved {
            let _ = mman::munmap(page, PAGE_BYTES);
        }
        moved
    }
}

/// In a forked child: a page of its own, with counts from zero and the parent's gauges.
pub(crate) fn leave_parents_page() {
    if SHARED.load(Relaxed) == IN_FILE {
        if mman::mmap_anonymous(PAGE_BYTES, 0).is_ok_and(put_over_counters) {
            SHARED.store(UNCLAIMED, Relaxed);
            STATS.reset_totals();
        } else {
            // No memory: the counts go on into the parent's page, rather than nowhere.
            return;
        }
    }
    STATS.pid.store(process::getpid(), Relaxed);
}

/// In a forked child that does enough to be worth it: takes a page of the file. Most children only `exec`.
pub(crate) fn take_page_late() {
    if SHARED.load(Relaxed) == UNCLAIMED && SHARED.swap(PRIVATE, Relaxed) == UNCLAIMED {
        take_page();
    }
}
