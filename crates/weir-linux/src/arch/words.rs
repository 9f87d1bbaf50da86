//! Words and offsets that restartable sections are written with.

use core::sync::atomic::AtomicUsize;

/// From the library's thread-local block to the area in use (`platform/fast_path/rseq.rs`).
pub static DELTA: AtomicUsize = AtomicUsize::new(0);
/// Offset in the area of the field that holds the index: `mm_cid`, or `cpu_id_start`.
pub static ID: AtomicUsize = AtomicUsize::new(AREA_MM_CID);

/// Offset in the area of `mm_cid` (Linux, `include/uapi/linux/rseq.h`).
pub const AREA_MM_CID: usize = 24;
/// Where in the library's thread-local block the thread's aborted sections are counted.
pub const ABORTS: usize = 80;
