//! Memory at its own addresses. The start maps the first 4 GiB; what lies above is mapped when it is needed.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use weir_core::base::run::Run;

/// A page table of any level.
#[repr(C, align(4096))]
pub struct Table([AtomicU64; 512]);

impl Table {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 512])
    }
}

/// The highest table.
pub static ROOT: Table = Table::new();
/// The directory of the first 512 GiB, and the tables of the first four; the start code fills them.
pub static FIRST_TABLES: [Table; 5] = [const { Table::new() }; 5];
/// Tables for what lies above: one a GiB, and one for each further 512 GiB.
static SPARE: [Table; 64] = [const { Table::new() }; 64];
static SPARE_USED: AtomicUsize = AtomicUsize::new(0);

const PRESENT_WRITABLE: u64 = 0b11;
const LARGE_PAGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const GIB: usize = 1 << 30;

/// Makes `run` usable at its own address; `false` if there are no tables left for it.
pub fn cover(run: Run) -> bool {
    let covered = (run.addr / GIB..(run.addr + run.len).div_ceil(GIB)).all(cover_gib);
    // SAFETY: loads what is loaded already, so that no stale entry stays.
    unsafe { asm!("mov {r}, cr3", "mov cr3, {r}", r = out(reg) _, options(nostack, preserves_flags)) };
    covered
}

fn cover_gib(gib: usize) -> bool {
    let Some(directory) = below(&ROOT.0[gib / 512 % 512]) else { return false };
    let entry = &directory.0[gib % 512];
    if entry.load(Relaxed) != 0 {
        return true;
    }
    let Some(table) = below(entry) else { return false };
    for (i, page) in table.0.iter().enumerate() {
        page.store((gib * GIB + (i << 21)) as u64 | LARGE_PAGE | PRESENT_WRITABLE, Relaxed);
    }
    true
}

/// The table that `entry` points to; a spare one if there was none.
fn below(entry: &'static AtomicU64) -> Option<&'static Table> {
    let now = entry.load(Relaxed);
    if now != 0 {
        // SAFETY: present entries above the last level hold addresses of tables of this module.
        return Some(unsafe { &*((now & ADDRESS) as *const Table) });
    }
    let table = SPARE.get(SPARE_USED.fetch_add(1, Relaxed))?;
    entry.store((&raw const *table) as u64 | PRESENT_WRITABLE, Relaxed);
    Some(table)
}
