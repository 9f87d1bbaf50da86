//! Where in the address space the heap and its metadata lie: apart, and by chance.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use weir_core::base::run::Run;
use weir_core::base::units::{Order, PAGE, PAGEBLOCK};
use weir_core::platform::Placed;

use crate::os::mman::{self, MAP_FIXED_NOREPLACE, MAP_NORESERVE, PROT_NONE};
use crate::os::page;
use crate::os::process;
use crate::os::syscall::Errno;

/// Addresses of windows: Linux puts nothing there without a requested address, whichever layout a process has (x86's
/// `arch_pick_mmap_layout` and `mmap_base`). A process has 128 TiB. The area of mmap usually lies below the stack. In
/// the legacy layout (`setarch -L`; in older kernels an unlimited stack too) it begins at a third of all,
/// `LEGACY_BASE`, and grows up. With an unlimited stack it ends at a sixth, `LOWEST_TOP`, as five sixths are the most
/// that the stack is left, and grows down. Programs and their brk heaps lie at the very bottom, or from two thirds on
/// (`ELF_ET_DYN_BASE`).
pub const WINDOWS: Range<usize> = 22 << 40..42 << 40;
/// Addresses that a heap may grow to, and what they begin at a multiple of. That is 16 TiB of places, 22 bits of
/// chance, and 6 more by the page at which the heap begins.
const HEAP: usize = 4 << 40;
const HEAP_ALIGN: usize = 2 * PAGEBLOCK;
/// Pages, a power of two less one, that the heap's window begins behind at most. They are 256 KiB, so that what a small
/// program has still fits into the first huge page.
const SKIPPED: usize = 63;
/// Addresses of metadata: Linux puts nothing there either. They lie above programs and their brk heaps. Chance puts
/// those into the 16 TiB from two thirds of all on (`vm.mmap_rnd_bits` of 32; 1 TiB by default). Metadata lies below
/// mmap's area, which ends as much below the stack.
pub const METADATA: Range<usize> = 102 << 40..106 << 40;
/// The part of [`METADATA`] in which metadata begins: 28 bits of chance. The arrays of a heap of 4 TiB take 37 GiB. Its
/// buckets take as much as the least objects that wait in them need: 2 TiB.
const METADATA_CHANCE: usize = 1 << 40;
/// Where windows below 4 GiB begin, at the lowest, and the 7 bits of chance there.
const LOW: usize = 1 << 30;
const LOW_CHANCE: usize = 1 << 29;
/// Where mmap's area begins in the legacy layout, 42.7 TiB (`TASK_UNMAPPED_BASE`); chance moves it up.
const LEGACY_BASE: usize = (1 << 47) / 3;
/// Where mmap's area ends at the lowest, 21.3 TiB (`gap_max`); chance moves it down.
const LOWEST_TOP: usize = (1 << 47) / 6;
const _: () = assert!(LOWEST_TOP <= WINDOWS.start && WINDOWS.end <= LEGACY_BASE);
const _: () = assert!((1 << 47) / 3 * 2 + (16 << 40) < METADATA.start && METADATA.end < (1 << 47) - (16 << 40));

/// The places for both.
struct Areas {
    windows: Range<usize>,
    /// Addresses that a heap may grow to.
    heap: usize,
    metadata: Range<usize>,
    /// The part in which metadata begins.
    chance: usize,
}

const WIDE: Areas = Areas { windows: WINDOWS, heap: HEAP, metadata: METADATA, chance: METADATA_CHANCE };
/// Where a process has 512 GiB: a kernel for arm64 with addresses of 39 bits. There mmap's area begins at a quarter of all in the
/// legacy layout. Programs and their brk heaps lie from two thirds on. Chance moves those and mmap's area by 64 GiB at most
/// (`vm.mmap_rnd_bits` of 24). A heap grows to 32 GiB, beside the blocks that are mapped on their own. It begins at one of a
/// thousand places, and its metadata within 1 GiB.
const NARROW: Areas =
    Areas { windows: 88 << 30..124 << 30, heap: 32 << 30, metadata: 408 << 30..440 << 30, chance: 1 << 30 };
const _: () = assert!((1 << 39) / 6 <= NARROW.windows.start && NARROW.windows.end <= (1 << 39) / 4);
const _: () = assert!((1 << 39) / 3 * 2 + (65 << 30) < NARROW.metadata.start);
const _: () = assert!(NARROW.metadata.end < (1 << 39) - (66 << 30));

/// Which of both a process has. On x86-64 it is known before.
const IS_UNKNOWN: u8 = 0;
const IS_WIDE: u8 = 1;
const IS_NARROW: u8 = 2;
const AT_FIRST: u8 = if cfg!(target_arch = "aarch64") { IS_UNKNOWN } else { IS_WIDE };

/// Things that are placed by chance, each in a range of its own.
#[derive(Clone, Copy)]
pub(crate) enum Area {
    Windows,
    Metadata,
}

/// Which addresses are taken.
pub(crate) struct AddressLayout {
    /// Where the next window may begin, and the next piece of metadata; 0 before the first.
    next: [AtomicUsize; 2],
    /// Where metadata begins; 0 before the first.
    metadata_begin: AtomicUsize,
    width: AtomicU8,
    /// Metadata was mapped since the kernel was last advised to use no huge pages behind it.
    metadata_grown: AtomicBool,
}

impl AddressLayout {
    /// Nothing is taken.
    pub(crate) const fn new() -> Self {
        let next = [const { AtomicUsize::new(0) }; 2];
        let (metadata_begin, metadata_grown) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { next, metadata_begin, width: AtomicU8::new(AT_FIRST), metadata_grown }
    }

    fn areas(&self) -> &'static Areas {
        let mut width = self.width.load(Relaxed);
        if width == IS_UNKNOWN {
            // Threads that ask at once get the same answer.
            width = if has_address(WINDOWS.start) { IS_WIDE } else { IS_NARROW };
            self.width.store(width, Relaxed);
        }
        if width == IS_NARROW { &NARROW } else { &WIDE }
    }

    /// The longest window that there is room for.
    pub(crate) fn longest_window(&self) -> usize {
        self.areas().heap
    }

    /// Addresses for `len` bytes of `area`: behind those given before, so that no two overlap; the first at random.
    pub(crate) fn next(&self, area: Area, len: usize, align: Order) -> Option<usize> {
        let (areas, next) = (self.areas(), &self.next[area as usize]);
        if next.load(Relaxed) == 0 {
            // Both at once, as asking the kernel costs a call. Of threads that do it together one decides.
            let [heap, metadata] = process::chance();
            let places = areas.windows.len() - areas.heap;
            let heap = areas.windows.start + heap % places / HEAP_ALIGN * HEAP_ALIGN + skipped(heap >> 56);
            let metadata = areas.metadata.start + metadata % areas.chance / page::bytes() * page::bytes();
            // Who finds addresses given finds this, too.
            let metadata = match self.metadata_begin.compare_exchange(0, metadata, Relaxed, Relaxed) {
                Ok(_) => metadata,
                Err(begin) => begin,
            };
            for (next, first) in self.next.iter().zip([heap, metadata]) {
                let _ = next.compare_exchange(0, first, Relaxed, Relaxed);
            }
        }
        let end = [areas.windows.end, areas.metadata.end][area as usize];
        let mut at = 0;
        let step = |before: usize| {
            at = before.next_multiple_of(align.pages().length().max(page::bytes()));
            at.checked_add(len).filter(|&after| after <= end)
        };
        next.fetch_update(Relaxed, Relaxed, step).ok().map(|_| at)
    }

    /// Whether it is where windows lie that may be anywhere.
    pub(crate) fn is_of_window(&self, addr: usize) -> bool {
        self.areas().windows.contains(&addr)
    }

    /// The addresses that were given to metadata.
    pub(crate) fn metadata(&self) -> Range<usize> {
        let end = self.next[Area::Metadata as usize].load(Relaxed);
        self.metadata_begin.load(Relaxed)..end
    }

    /// A window below 4 GiB, of 2 GiB.
    pub(crate) fn low_window(align: Order) -> Run {
        let ([place, page], align) = (process::chance(), align.pages().length());
        let skipped = skipped(page);
        Run { addr: LOW + place % LOW_CHANCE / align * align + skipped, len: (2 << 30) - skipped }
    }

    /// Maps `run` if nothing is mapped there.
    pub(crate) fn map(&self, run: Run) -> Placed {
        use mman::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        let at = run.addr as *mut u8;
        // SAFETY: NOREPLACE: what exists is left alone.
        let got = match unsafe { mman::mmap(at, run.len, PROT_READ | PROT_WRITE, flags, -1, 0) } {
            Ok(got) => got,
            Err(Errno::EEXIST) => return Placed::Occupied,
            Err(_) => return Placed::Refused,
        };
        if got != at {
            // Kernels before 4.17 take the address as a hint only.
            // SAFETY: just mapped, and no other code has the address yet.
            let _ = unsafe { mman::munmap(got, run.len) };
            return Placed::Occupied;
        }
        if self.areas().metadata.contains(&run.addr) {
            self.metadata_grown.store(true, Relaxed);
        }
        Placed::Done
    }

    /// Advises against huge pages behind metadata: khugepaged would fill up what was released, for one page in use in 2
    /// MiB.
    pub(crate) fn keep_metadata_small(&self) {
        if self.metadata_grown.swap(false, Relaxed) {
            // Beside these the program may have mapped something.
            let metadata = self.metadata();
            // It fails for what is not mapped of the range, and does what it should to the rest.
            // SAFETY: the advice changes no contents, whatever is mapped there.
            let _ = unsafe { mman::madvise(metadata.start as *mut u8, metadata.len(), mman::MADV_NOHUGEPAGE) };
        }
    }
}

/// Bytes of the first pageblock that a window leaves out: whole pages of the kernel's.
fn skipped(random: usize) -> usize {
    ((random & SKIPPED) * PAGE) & !(page::bytes() - 1)
}

/// Whether a process may have a page at an address where nothing lies yet.
fn has_address(addr: usize) -> bool {
    let flags = mman::MAP_PRIVATE | mman::MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: what exists is left alone.
    match unsafe { mman::mmap(addr as *mut u8, PAGE, PROT_NONE, flags, -1, 0) } {
        Ok(at) => {
            // SAFETY: just mapped, and no other code has the address.
            let _ = unsafe { mman::munmap(at, PAGE) };
            at as usize == addr
        }
        Err(why) => why != Errno::ENOMEM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_beyond_those_of_a_process_are_told() {
        assert!(!has_address(1 << 60));
        assert!(has_address(WINDOWS.start) || cfg!(target_arch = "aarch64"));
    }

    #[test]
    fn both_areas_fit_into_39_bits() {
        let layout = AddressLayout { width: AtomicU8::new(IS_NARROW), ..AddressLayout::new() };
        assert!(layout.next(Area::Windows, HEAP, Order::PAGE).is_none(), "a window of 4 TiB");
        let layout = AddressLayout { width: AtomicU8::new(IS_NARROW), ..AddressLayout::new() };
        let heap = layout.next(Area::Windows, layout.longest_window(), Order::PAGE).unwrap();
        let metadata = layout.next(Area::Metadata, 1 << 30, Order::PAGE).unwrap();
        for (addr, len) in [(heap, layout.longest_window()), (metadata, 1 << 30)] {
            assert!(addr + len <= 1 << 39);
            let run = Run { addr: addr + len - PAGE, len: PAGE };
            assert_eq!(layout.map(run), Placed::Done);
            // SAFETY: just mapped, and no other code has the address.
            unsafe { mman::munmap(run.addr as *mut u8, PAGE) }.unwrap();
        }
        assert!(layout.metadata_grown.load(Relaxed));
    }

    #[test]
    fn metadata_is_what_was_given_to_it() {
        let layout = AddressLayout::new();
        assert!(layout.metadata().is_empty());
        let _ = layout.next(Area::Windows, PAGEBLOCK, Order::PAGE).unwrap();
        assert!(layout.metadata().is_empty() && layout.metadata().start != 0);
        let first = layout.next(Area::Metadata, PAGE, Order::PAGE).unwrap();
        let last = layout.next(Area::Metadata, 3 * PAGEBLOCK, Order::BLOCK).unwrap();
        let metadata = layout.metadata();
        assert_eq!(metadata, first..last + 3 * PAGEBLOCK);
        assert!(metadata.start.is_multiple_of(page::bytes()), "the kernel takes advice for whole pages");
    }
}
