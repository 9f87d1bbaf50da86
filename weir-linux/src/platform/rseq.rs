//! Restartable sequences: the fast path's pops and pushes on x86-64.
//!
//! A *section* is a stretch of instructions that the kernel sends back to its start if the thread was preempted,
//! migrated or signalled inside it. A thread announces one by storing the address of its descriptor (start, length,
//! abort address) in its rseq area; every libc thread has such an area, registered by glibc (2.35 and later) at a
//! fixed distance from the thread pointer.
//!
//! Each section here reads the CPU's index and everything derived from it inside, and ends with its one committing
//! store. It never writes the area's read-only fields and keeps nothing derived from them.
//!
//! The library has a thread-local block of its own, laid out as an area whose index is [`NO_CPU`]: that table entry is the
//! empty dummy for good. The sections here address that block plus `DELTA`, which is 0 until libc's area has been
//! found to work and is then the distance to it. So they are safe before anything was set up, also for a thread that is
//! inside a section at that moment, and where there are no restartable sequences, without a check of their own. Fast
//! paths written by hand address [`AREA`] and save an addition; what keeps them out until that is set is said there.
//! [`ID`] is the field with the index: `mm_cid` where the kernel has it (dense: bounded by the number of threads), or
//! `cpu_id_start`.

use core::arch::{asm, global_asm};
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Relaxed, Release},
};
use linux_raw_sys::general::__NR_rseq;
use weir_core::base::size_class::MAX_SIZE;
use weir_core::platform::cpu_table::{END_OFFSET, NO_CPU, PUSHES_OFFSET, Pushed, Table};

use crate::os::process::{membarrier, membarrier_cmd};
use crate::os::syscall::{check, syscall4};

// 32 bytes laid out as an rseq area, then the word in which debug builds keep the thread's lock ranks.
global_asm!(
    ".pushsection .tdata, \"awT\", @progbits",
    ".balign 32",
    ".hidden weir_thread_block",
    ".globl weir_thread_block",
    ".type weir_thread_block, @object",
    ".size weir_thread_block, 64",
    "weir_thread_block:",
    // cpu_id_start, cpu_id (not registered), rseq_cs, flags, node_id, mm_cid
    ".long {no_cpu}, -1, 0, 0, 0, 0, {no_cpu}, 0",
    ".zero 32",
    ".popsection",
    no_cpu = const NO_CPU,
);
/// Bytes of the library's block.
const BLOCK: isize = 64;

/// From the library's block to the area in use.
static DELTA: AtomicUsize = AtomicUsize::new(0);
/// From the thread pointer to the area in use; 0 until [`enable`] was called. Nobody may use it before: an allocation
/// compares its size with [`FAST_SIZES`], a free finds that the window has no pages (see `Linux::window`).
pub static AREA: AtomicUsize = AtomicUsize::new(0);
/// Sizes below this take the fast path: none until [`enable`] found that there is one.
pub static FAST_SIZES: AtomicUsize = AtomicUsize::new(0);
/// Offset in the area of the field that holds the index.
pub static ID: AtomicUsize = AtomicUsize::new(AREA_MM_CID);

// Offsets in the area (Linux, `include/uapi/linux/rseq.h`); `rseq_cs` is at 8.
/// Offset of `cpu_id_start`.
const AREA_CPU_ID_START: usize = 0;
/// Offset of `cpu_id`: negative while the thread is not registered.
const AREA_CPU_ID: usize = 4;
/// Offset of `node_id`.
const AREA_NODE_ID: usize = 20;
/// Offset of `mm_cid`.
const AREA_MM_CID: usize = 24;
/// Where in the thread's own block the lock ranks are.
const BLOCK_RANKS: usize = 32;
/// Auxiliary vector entry: bytes of the rseq area that the kernel fills.
const AT_RSEQ_FEATURE_SIZE: usize = 27;
/// Bytes of an area that every kernel takes, and its alignment.
const AREA_BYTES: usize = 32;
/// What the kernel finds before an abort address.
const SIGNATURE: usize = 0x5305_3053;

/// What restartable sequences this thread's libc and kernel offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Distance of the area from the thread pointer.
    pub offset: isize,
    /// Bytes of it that are filled.
    pub features: usize,
    /// `mm_cid` is among them.
    pub mm_cid: bool,
    /// `node_id` is among them.
    pub node_id: bool,
}

/// The area that libc registered for the calling thread, if it did.
pub fn area() -> Option<Area> {
    let (offset, size): (*const isize, *const u32);
    let getauxval: *const ();
    // SAFETY: three addresses from the global offset table, null where libc lacks the symbol.
    unsafe {
        asm!(
            ".weak __rseq_offset", ".weak __rseq_size", ".weak getauxval",
            "mov {offset}, [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, [rip + __rseq_size@GOTPCREL]",
            "mov {getauxval}, [rip + getauxval@GOTPCREL]",
            offset = out(reg) offset, size = out(reg) size, getauxval = out(reg) getauxval,
            options(nostack, preserves_flags, pure, readonly),
        );
    }
    // SAFETY: libc's variables, when they exist, are set before any code of this library runs.
    let (offset, size) = unsafe { (*offset.as_ref()?, *size.as_ref()? as usize) };
    if size == 0 || (read_thread_word(offset.wrapping_add_unsigned(AREA_CPU_ID)) as i32) < 0 {
        return None;
    }
    // 20 and 32 are what libcs report that do not know the kernel's size; it is in the auxiliary vector then.
    let filled = match (size, getauxval.is_null()) {
        (20 | 32, false) => {
            // SAFETY: libc's function of this type; any argument is allowed.
            let getauxval =
                unsafe { core::mem::transmute::<*const (), unsafe extern "C" fn(usize) -> usize>(getauxval) };
            // SAFETY: as above.
            unsafe { getauxval(AT_RSEQ_FEATURE_SIZE) }.clamp(16, 32)
        }
        _ => size,
    };
    Some(Area { offset, features: filled, mm_cid: filled >= AREA_MM_CID + 4, node_id: filled >= AREA_NODE_ID + 4 })
}

/// Puts the fast path on restartable sequences if all it needs is there: an area, a table big enough for every
/// index, and the fence that takes another CPU's buckets over.
///
/// A section that another thread has begun on its block before ends there, on the dummy.
pub fn enable(max_cpus: usize) -> bool {
    AREA.store(block_distance(), Relaxed);
    let Some(area) = area() else { return false };
    if crate::platform::topology::cpus_bound() > max_cpus
        || membarrier(membarrier_cmd::REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0).is_err()
    {
        return false;
    }
    let id = if area.mm_cid { AREA_MM_CID } else { AREA_CPU_ID_START };
    ID.store(id, Relaxed);
    DELTA.store((area.offset as usize).wrapping_sub(block_distance()), Relaxed);
    AREA.store(area.offset as usize, Relaxed);
    FAST_SIZES.store(MAX_SIZE + 1, Release);
    true
}

/// Restarts every section that a thread of this process is in. `false`: refused, by a sandbox that came after the
/// registration or for want of kernel memory.
pub fn fence() -> bool {
    membarrier(membarrier_cmd::PRIVATE_EXPEDITED_RSEQ, 0, 0).is_ok()
}

/// How far from its thread pointer a thread's areas reach: bytes below and above.
pub(crate) fn reach() -> (usize, usize) {
    let block = block_distance() as isize;
    let area = block.wrapping_add(DELTA.load(Relaxed) as isize);
    let below = block.min(area).min(0).unsigned_abs();
    (below, (block.max(area) + BLOCK).max(0) as usize)
}

/// Gives a thread that libc does not know its areas.
///
/// # Safety
/// `pointer` is a new thread's thread pointer; the bytes that [`reach`] names around it are valid and nobody's.
pub(crate) unsafe fn lay_out(pointer: usize) {
    let block = pointer.wrapping_add(block_distance());
    for area in [block, block.wrapping_add(DELTA.load(Relaxed))] {
        // SAFETY: as the caller promises.
        unsafe {
            ((area + AREA_CPU_ID_START) as *mut u32).write(NO_CPU as u32);
            ((area + AREA_CPU_ID) as *mut i32).write(-1);
            ((area + AREA_MM_CID) as *mut u32).write(NO_CPU as u32);
        }
    }
}

/// Has the kernel keep the calling thread's area, which [`lay_out`] made, or (`keep` false) no longer. Where the kernel
/// refuses, the thread's sections all find the dummy.
pub(crate) fn register(keep: bool) -> bool {
    const UNREGISTER: usize = 1;
    let delta = DELTA.load(Relaxed);
    if delta == 0 {
        return true;
    }
    let area = thread_pointer().wrapping_add(block_distance()).wrapping_add(delta);
    // SAFETY: the area is the calling thread's own, and lives until it is unregistered.
    check(unsafe { syscall4(__NR_rseq, area, AREA_BYTES, if keep { 0 } else { UNREGISTER }, SIGNATURE) }).is_ok()
}

/// The current index; it may be stale at once.
#[inline]
pub fn index() -> usize {
    let distance = block_distance().wrapping_add(DELTA.load(Relaxed)).wrapping_add(ID.load(Relaxed));
    read_thread_word(distance as isize) as usize
}

/// The current NUMA node, where the area has it.
pub fn node(area: Area) -> usize {
    read_thread_word(area.offset.wrapping_add_unsigned(AREA_NODE_ID)) as usize
}

/// From the thread pointer to the library's block.
fn block_distance() -> usize {
    let distance: usize;
    // SAFETY: a word of the global offset table, which the loader has filled.
    unsafe {
        asm!("mov {d}, [rip + weir_thread_block@GOTTPOFF]", d = out(reg) distance,
            options(nostack, pure, readonly, preserves_flags));
    }
    distance
}

/// The calling thread's lock ranks.
pub fn ranks() -> &'static AtomicU32 {
    // SAFETY: the block is this library's, and the thread's.
    unsafe { &*(thread_pointer().wrapping_add(block_distance()).wrapping_add(BLOCK_RANKS) as *const AtomicU32) }
}

/// A number that tells threads apart, for where there is no CPU index.
pub fn thread_number() -> usize {
    let pointer = thread_pointer();
    pointer >> 12 ^ pointer >> 20
}

fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the thread pointer, which x86-64's ABI keeps at distance 0 of itself.
    unsafe { asm!("mov {p}, fs:[0]", p = out(reg) pointer, options(nostack, pure, readonly, preserves_flags)) };
    pointer
}

fn read_thread_word(distance: isize) -> u32 {
    let word: u32;
    // SAFETY: inside libc's area or this library's block.
    unsafe { asm!("mov {w:e}, fs:[{d}]", w = out(reg) word, d = in(reg) distance, options(nostack, readonly)) };
    word
}

/// The beginning of every section, here and in fast paths written by hand: announces it and leaves the CPU's slab in the
/// second register. Given are: the instructions that set the first register to the area's distance from the thread
/// pointer, the two registers, the second's lower half, the register with the table's address. The text wants an operand
/// `id` (the symbol [`ID`]); the section ends at the label `63`, where the caller puts it.
#[doc(hidden)]
#[macro_export]
macro_rules! section {
    ($area:literal, $scratch:literal, $slab:literal, $slab32:literal, $table:literal) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n.balign 32\n66:\n.long 0, 0\n.quad 62f, 63f - 62f, 64f\n.popsection\n",
            // The signature that the kernel asks for before an abort address, made the operand of a trapping `ud1`.
            ".pushsection __rseq_failure, \"ax\"\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n64:\njmp 65f\n.popsection\n",
            "65:\n", $area, "\n",
            "lea ", $slab, ", [rip + 66b]\nmov fs:[", $scratch, " + 8], ", $slab, "\n",
            "62:\nmov ", $slab, ", [rip + {id}]\nmov ", $slab32, ", fs:[", $scratch, " + ", $slab, "]\n",
            "mov ", $slab, ", [", $table, " + ", $slab, "*8]\n"
        )
    };
}

/// What a fast path written by hand is made of: offsets in [`HEAP`](crate::process::heap::HEAP) and in a CPU's slab, bytes.
#[doc(hidden)]
pub mod fast {
    use crate::process::heap::Process;
    pub use weir_core::base::size_class::MIN_ALIGN;
    pub use weir_core::base::units::PAGE_SHIFT;
    pub use weir_core::platform::cpu_table::{END_OFFSET as END, PUSHES_OFFSET as PUSHES};

    /// The table of CPUs.
    pub const TABLE: usize = Process::FAST[0];
    /// The classes, from the table on.
    pub const CLASSES: usize = weir_core::platform::cpu_table::CLASSES_OFFSET;
    /// The window's address.
    pub const BASE: usize = Process::FAST[1];
    /// The window's pages.
    pub const TOP: usize = Process::FAST[2];
    /// The class map's address.
    pub const CLASS_MAP: usize = Process::FAST[3];
}

/// [`section!`] of the sections here. Register names: `c` is scratch, `t` the CPU's slab.
macro_rules! begin {
    () => {
        section!(
            "mov {c}, [rip + weir_thread_block@GOTTPOFF]\nadd {c}, [rip + {delta}]",
            "{c}",
            "{t}",
            "{t:e}",
            "{table}"
        )
    };
}

/// Pops an object of `class`; null when the bucket is empty.
///
/// # Safety
/// The table's entries point to slabs that live on.
#[inline(always)]
pub unsafe fn pop(table: &Table, class: usize) -> *mut u8 {
    let object: *mut u8;
    // SAFETY: a section as described above; the slot below `current` is an object or the zero word.
    unsafe {
        asm!(
            begin!(),
            "mov {c:e}, dword ptr [{t} + {class}*8]",
            "mov {object}, [{t} + {c}*8 - 8]",
            "test {object}, {object}",
            "jz 63f",
            "dec {c:e}",
            "mov dword ptr [{t} + {class}*8], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _, object = out(reg) object,
            table = in(reg) table, class = in(reg) class,
            delta = sym DELTA, id = sym ID,
            options(nostack),
        );
    }
    object
}

/// Pushes `object`.
///
/// # Safety
/// As [`pop`]; the object is not null and the caller's.
#[inline(always)]
pub unsafe fn push(table: &Table, class: usize, object: *mut u8) -> Pushed {
    // SAFETY: a section as described above; `current < end` names a slot of the class. The jumps to the labels leave
    // the section before anything is written.
    unsafe {
        asm!(
            begin!(),
            "mov {c:e}, dword ptr [{t} + {class}*8]",
            "cmp [{t} + {c}*8 - 8], {object}",
            "je {twice}",
            "cmp {c:e}, dword ptr [{t} + {class}*8 + {end}]",
            "jae {full}",
            "inc dword ptr [{t} + {class}*4 + {pushes}]",
            "mov [{t} + {c}*8], {object}",
            "inc {c:e}",
            "mov dword ptr [{t} + {class}*8], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _,
            table = in(reg) table, class = in(reg) class, object = in(reg) object,
            pushes = const PUSHES_OFFSET, end = const END_OFFSET,
            twice = label { return Pushed::Twice },
            full = label { return Pushed::Full },
            delta = sym DELTA, id = sym ID,
            options(nostack),
        );
    }
    Pushed::Done
}

/// Pops up to `objects.len()`; returns how many.
///
/// # Safety
/// As [`pop`].
pub unsafe fn pop_batch(table: &Table, class: usize, objects: &mut [*mut u8]) -> usize {
    let n: usize;
    // SAFETY: as in `pop`; at most `objects.len()` objects are written.
    unsafe {
        asm!(
            begin!(),
            "mov {c:e}, dword ptr [{t} + {class}*8]",
            "xor {n:e}, {n:e}",
            "67:",
            "cmp {n}, {max}",
            "jae 68f",
            "mov {object}, [{t} + {c}*8 - 8]",
            "test {object}, {object}",
            "jz 68f",
            "mov [{out} + {n}*8], {object}",
            "inc {n:e}",
            "dec {c:e}",
            "jmp 67b",
            "68:",
            "test {n:e}, {n:e}",
            "jz 63f",
            "mov dword ptr [{t} + {class}*8], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _, object = out(reg) _, n = out(reg) n,
            table = in(reg) table, class = in(reg) class, out = in(reg) objects.as_mut_ptr(), max = in(reg) objects.len(),
            delta = sym DELTA, id = sym ID,
            options(nostack),
        );
    }
    n
}

/// Pushes the first of `objects`, as many as fit; returns how many.
///
/// # Safety
/// As [`push`].
pub unsafe fn push_batch(table: &Table, class: usize, objects: &[*mut u8]) -> usize {
    let n: usize;
    // SAFETY: as in `push`; slots at and above `current` are nobody's until the commit.
    unsafe {
        asm!(
            begin!(),
            "mov {c:e}, dword ptr [{t} + {class}*8]",
            "mov {end:e}, dword ptr [{t} + {class}*8 + {end_at}]",
            "xor {n:e}, {n:e}",
            "67:",
            "cmp {n}, {max}",
            "jae 68f",
            "cmp {c:e}, {end:e}",
            "jae 68f",
            "mov {object}, [{from} + {n}*8]",
            "mov [{t} + {c}*8], {object}",
            "inc {n:e}",
            "inc {c:e}",
            "jmp 67b",
            "68:",
            "test {n:e}, {n:e}",
            "jz 63f",
            "mov dword ptr [{t} + {class}*8], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _, end = out(reg) _, object = out(reg) _, n = out(reg) n,
            table = in(reg) table, class = in(reg) class, from = in(reg) objects.as_ptr(), max = in(reg) objects.len(),
            end_at = const END_OFFSET, delta = sym DELTA, id = sym ID,
            options(nostack),
        );
    }
    n
}
