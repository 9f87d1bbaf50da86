//! Making memory zero without touching what is zero already.
//!
//! A write makes a page resident in the host. A read of a page that was not written to does not (the host maps its one
//! page of zeros). So fresh memory is looked at first, and stays where it is: with the host.

use weir_core::base::run::Run;
use weir_core::base::units::PAGE;

static ZERO: [u8; PAGE] = [0; PAGE];

/// The pages of `run` as bytes.
///
/// # Safety
/// `run` is whole pages of mapped memory that nobody writes to meanwhile.
unsafe fn pages<'a>(run: Run) -> impl Iterator<Item = &'a [u8; PAGE]> {
    // SAFETY: as the caller promises.
    (0..run.len / PAGE).map(move |i| unsafe { &*((run.addr + i * PAGE) as *const [u8; PAGE]) })
}

/// Whether all of `run` is zero.
///
/// # Safety
/// `run` is whole pages of mapped memory that nobody writes to meanwhile.
pub unsafe fn is_zero(run: Run) -> bool {
    // SAFETY: as the caller promises.
    unsafe { pages(run) }.all(|page| *page == ZERO)
}

/// Makes all of `run` zero; writes only to pages that are not.
///
/// # Safety
/// `run` is whole pages of mapped memory that is not used.
pub unsafe fn make_zero(run: Run) {
    for addr in (run.addr..run.addr + run.len).step_by(PAGE) {
        // SAFETY: as the caller promises.
        unsafe {
            if !is_zero(Run { addr, len: PAGE }) {
                core::ptr::write_bytes(addr as *mut u8, 0, PAGE);
            }
        }
    }
}
