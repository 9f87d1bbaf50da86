//! From the loader's word to a heap.

use core::sync::atomic::AtomicU64;

use weir_core::base::run::Run;
use weir_core::base::units::PAGE;
use weir_core::heap::Heap;
use weir_guest::boot_info::StartInfo;
use weir_guest::frames::Frames;
use weir_guest::machine::Machine;
use weir_guest::settings::Settings;
use weir_guest::virtio_pci::PciDevice;

use super::console::{self, say};
use super::ending::{End, exit};
use super::{clock, devices, paging, workload};

/// Memory that is used at most: what the bits below are for.
const MOST_MEMORY: usize = 64 << 30;
/// Firmware, video memory and the loader's data lie below.
const LOW_END: usize = 1 << 20;

/// A bit for each page.
static FREE_PAGES: [AtomicU64; MOST_MEMORY / PAGE / 64] = [const { AtomicU64::new(0) }; _];

/// The heap.
// SAFETY: one CPU and no interrupt handler.
pub static HEAP: Heap<Machine<PciDevice>> = Heap::new(unsafe { Machine::new(clock::now) });

unsafe extern "C" {
    /// The first page behind the image (the linker script).
    static weir_guest_image_end: u8;
}

/// Called by the start code.
pub extern "C" fn start(info: *const StartInfo) -> ! {
    console::init();
    clock::init();
    // SAFETY: the loader passed it, all low memory is mapped, and nothing of it was taken yet.
    let info = unsafe { StartInfo::at(info) };
    let info = info.expect("no PVH start information with a memory map: boot the image with QEMU's -kernel");
    let settings = Settings::parse(info.command_line()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let frames = find_memory(info);
    say!("boot memory_bytes={} tsc_khz={}", frames.free_bytes(), clock::khz());
    let reporter = devices::reporter();
    // SAFETY: the free pages are memory behind the image, mapped, and nobody's yet.
    unsafe { HEAP.platform().start(frames, reporter) };
    HEAP.prepare();
    let good = workload::run(&settings);
    say!("end={}", if good { "good" } else { "bad" });
    exit(if good { End::Good } else { End::Bad })
}

/// All memory behind the image.
fn find_memory(info: &StartInfo) -> Frames {
    let mut frames = Frames::new(0, &FREE_PAGES);
    let begin = LOW_END.max(&raw const weir_guest_image_end as usize);
    for ram in info.ram() {
        let addr = ram.addr.max(begin);
        let run = Run { addr, len: (ram.addr + ram.len).saturating_sub(addr) };
        if run.len > 0 && paging::cover(run) {
            frames.give(run);
        }
    }
    frames
}
