//! The kernel's pages, which may be longer than the engine's.

use crate::arch;
use crate::os::process::auxiliary;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weir_core::base::units::PAGE;

static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a page.
pub fn bytes() -> usize {
    if let Some(bytes) = arch::page::BYTES {
        return bytes;
    }
    match BYTES.load(Relaxed) {
        0 => find_out(),
        bytes => bytes,
    }
}

/// Threads that ask at once get the same answer.
#[cold]
fn find_out() -> usize {
    let said = auxiliary(linux_raw_sys::auxvec::AT_PAGESZ).filter(|bytes| bytes.is_power_of_two());
    let bytes = said.unwrap_or(PAGE).max(PAGE);
    BYTES.store(bytes, Relaxed);
    bytes
}
