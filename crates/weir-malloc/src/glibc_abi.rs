//! glibc's extensions: trim, statistics and tuning. Here are the rules; `names` exports them.

use crate::errno::{EINVAL, fail};
use arrayvec::ArrayString;
use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};
use weir::heap;
use weir_core::caches::figures::CacheStats;
use weir_linux::os::fd;
use weir_linux::process::heap::HEAP;
use weir_linux::weak_symbol;

weak_symbol!(
    /// Standard output's writer. A static program that calls `malloc_info` need not use it itself.
    fputs = "fputs" in libc: unsafe extern "C" fn(*const u8, *mut c_void) -> c_int
);

/// `malloc_trim`: everything idle is released now; 1 if anything was. The pad, glibc's slack at the top
/// of its heap, has no counterpart: Weir's heap has no top. Libraries call it on any thread. So no `fini` of a cache is called
/// here: what waits for one is left to the finalizer thread.
pub fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(HEAP.purge_unfinalized() > 0)
}

/// glibc's `struct mallinfo2`, and with `int` in place of `size_t` its older `struct mallinfo`.
#[repr(C)]
pub struct MallInfoOf<T> {
    arena: T,
    ordblks: T,
    smblks: T,
    hblks: T,
    hblkhd: T,
    usmblks: T,
    fsmblks: T,
    uordblks: T,
    fordblks: T,
    keepcost: T,
}

/// The result of `mallinfo`.
pub type MallInfo = MallInfoOf<c_int>;
/// The result of `mallinfo2`.
pub type MallInfo2 = MallInfoOf<usize>;

/// Says the heap's usage in glibc's words, which add up as glibc's do: `arena` is `uordblks` and `fordblks`. What is live is
/// `uordblks` and `hblkhd`, in blocks that have no mapping of their own and in those that have. `fordblks` is what is idle or
/// fragmented. Objects that wait in a CPU's bucket count in `ordblks` as those of depots and slabs do: `smblks` and `fsmblks` are
/// glibc's fastbins, whose blocks stay apart from free neighbours; Weir has none. Free pages count as one block.
fn describe<T>(convert: impl Fn(usize) -> T) -> MallInfoOf<T> {
    let usage = heap::usage();
    let mut objects = 0;
    each_used(|cache| objects += cache.free_cpu + cache.free_depot + cache.free_slab);
    let free = usage.idle_bytes + usage.fragmented_bytes + usage.merged_bytes;
    // Other threads may have gone on between one number and the next.
    let used = usage.live_bytes.saturating_sub(usage.mapped_bytes);
    MallInfoOf {
        arena: convert(used + free),
        ordblks: convert(objects + usize::from(usage.idle_bytes > 0)),
        smblks: convert(0),
        hblks: convert(usage.mapped_count),
        hblkhd: convert(usage.mapped_bytes),
        usmblks: convert(0),
        fsmblks: convert(0),
        uordblks: convert(used),
        fordblks: convert(free),
        // What a trim would release: here, unlike in glibc, all that is idle.
        keepcost: convert(usage.idle_bytes),
    }
}

/// `mallinfo2`.
pub fn mallinfo2() -> MallInfo2 {
    describe(|number| number)
}

/// `mallinfo`. A number that an `int` cannot hold stops at its maximum; glibc's wraps around.
pub fn mallinfo() -> MallInfo {
    describe(|number| c_int::try_from(number).unwrap_or(c_int::MAX))
}

/// `malloc_info`: the state as XML, in the form of glibc's version 1. The totals, and an element for each cache that
/// was ever used, malloc's size classes among them: Weir has no arenas.
pub unsafe fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 {
        // glibc returns the code rather than setting `errno`, and so do we.
        return EINVAL;
    }
    let Some(fputs) = fputs() else {
        fail(EINVAL);
        return -1;
    };
    let mut done = true;
    let mut put = |parts: fmt::Arguments<'_>| {
        let mut text = text(parts);
        if text.is_full() {
            text.pop();
        }
        text.push('\0');
        // SAFETY: a zero-terminated string, and the caller's promise: an open stream.
        done &= unsafe { fputs(text.as_ptr(), stream) } >= 0;
    };
    let usage = heap::usage();
    let free = usage.idle_bytes + usage.fragmented_bytes + usage.merged_bytes;
    put(format_args!("<malloc version=\"1\">\n<total type=\"rest\" count=\"0\" size=\"{free}\"/>\n"));
    let (count, size) = (usage.mapped_count, usage.mapped_bytes);
    put(format_args!("<total type=\"mmap\" count=\"{count}\" size=\"{size}\"/>\n"));
    for (element, kind, size) in [
        ("system", "current", usage.resident_bytes()),
        ("aspace", "total", usage.address_space_bytes + usage.mapped_bytes),
        ("weir", "live", usage.live_bytes),
        ("weir", "idle", usage.idle_bytes),
        ("weir", "fragmented", usage.fragmented_bytes),
        ("weir", "merged", usage.merged_bytes),
        ("weir", "metadata", usage.metadata_bytes),
        ("weir", "untouched", usage.untouched_bytes),
    ] {
        put(format_args!("<{element} type=\"{kind}\" size=\"{size}\"/>\n"));
    }
    each_used(|cache| {
        let figures = figures(cache);
        let figures = fmt::from_fn(|f| figures.iter().try_for_each(|(name, value)| write!(f, " {name}=\"{value}\"")));
        put(format_args!("<cache name=\"{}\"{figures}/>\n", attribute(cache.name())));
    });
    put(format_args!("</malloc>\n"));
    if done { 0 } else { -1 }
}

/// The parts as one text, made without allocating. What does not fit is left out.
fn text(parts: fmt::Arguments<'_>) -> ArrayString<1024> {
    let mut text = ArrayString::new();
    let _ = text.write_fmt(parts);
    text
}

/// A text as the value of an XML attribute. A character that XML has no way to write is `?`.
fn attribute(text: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        text.chars().try_for_each(|character| match character {
            '<' => f.write_str("&lt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            '\t' | '\n' | '\r' => write!(f, "&#{};", character as u32),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => f.write_char('?'),
            other => f.write_char(other),
        })
    })
}

/// Calls `f` with the figures of each cache that was ever used.
fn each_used(mut f: impl FnMut(&CacheStats)) {
    let mut number = 0;
    while let Some(cache) = HEAP.next_cache(number) {
        number = cache.number;
        if cache.requests > 0 || cache.failures > 0 {
            f(&cache);
        }
    }
}

/// A cache's figures, by the names that `malloc_info` gives them; the first are `malloc_stats`' columns.
fn figures(cache: &CacheStats) -> [(&'static str, usize); 20] {
    let [bucket, bucket_min, bucket_max] = cache.bucket;
    [
        ("size", cache.size),
        ("used", cache.used),
        ("cpu", cache.free_cpu),
        ("depot", cache.free_depot),
        ("slab", cache.free_slab),
        ("requests", cache.requests as usize),
        ("fail", cache.failures as usize),
        ("xcpu", cache.crossed as usize),
        ("bucket", bucket),
        ("wset", cache.working_set),
        ("stale_ms", (cache.stale_ns / 1_000_000) as usize),
        ("trims", cache.trims as usize),
        ("drains", cache.drains as usize),
        ("back", (cache.trimmed_bytes + cache.drained_bytes) as usize),
        ("bucket_min", bucket_min),
        ("bucket_max", bucket_max),
        ("visits", cache.visits as usize),
        ("misses", cache.misses as usize),
        ("reserve", cache.reserve),
        ("slab_bytes", cache.slab_bytes),
    ]
}

/// Columns of `malloc_stats`' table of caches.
const COLUMNS: usize = 14;

/// `malloc_stats`: the totals, and a line for each cache that was ever used, on standard error.
pub fn malloc_stats() {
    let usage = heap::usage();
    let totals = [
        ("live bytes", usage.live_bytes),
        ("idle bytes", usage.idle_bytes),
        ("fragmented bytes", usage.fragmented_bytes),
        ("merged bytes", usage.merged_bytes),
        ("metadata bytes", usage.metadata_bytes),
        ("untouched bytes", usage.untouched_bytes),
        ("resident bytes", usage.resident_bytes()),
        ("mmap regions", usage.mapped_count),
        ("mmap bytes", usage.mapped_bytes),
        ("address space bytes", usage.address_space_bytes),
    ];
    // As it is: a half-written or refused message changes nothing. Not by libc's `write`: a thread that was cancelled would end
    // there.
    let say = |parts: fmt::Arguments<'_>| _ = fd::write(2, text(parts).as_bytes());
    let totals = fmt::from_fn(|f| totals.iter().try_for_each(|(name, value)| writeln!(f, "{name:<19} = {value}")));
    say(format_args!("{totals}"));
    let names = fmt::from_fn(|f| {
        figures(&CacheStats::default())[..COLUMNS].iter().try_for_each(|(name, _)| write!(f, " {name:>9}"))
    });
    say(format_args!("{:<NAME_WIDTH$}{names}\n", "ITEM"));
    each_used(|cache| {
        let values =
            fmt::from_fn(|f| figures(cache)[..COLUMNS].iter().try_for_each(|(_, value)| write!(f, " {value:>9}")));
        say(format_args!("{:<NAME_WIDTH$}{values}\n", cache.name()));
    });
}

const NAME_WIDTH: usize = 20;

// mallopt's parameters, from glibc's malloc.h.
const M_MXFAST: c_int = 1;
const M_TRIM_THRESHOLD: c_int = -1;
const M_TOP_PAD: c_int = -2;
const M_CHECK_ACTION: c_int = -5;
const M_PERTURB: c_int = -6;
const M_ARENA_TEST: c_int = -7;
const M_ARENA_MAX: c_int = -8;

/// The most that glibc takes for `M_MXFAST` (`MAX_FAST_SIZE`), bytes.
const MAX_FAST: c_int = 160;
/// `M_CHECK_ACTION`: a message, and the end of the process.
const CHECK_AND_ABORT: c_int = 3;

/// `mallopt`: 1 where what the parameter says at this value holds, 0 where it does not. Weir has parameters of its own
/// (`weir settings`), and none of these changes it.
pub fn mallopt(parameter: c_int, value: c_int) -> c_int {
    let holds = match parameter {
        // Small blocks come from fast lists. glibc refuses more than it has room for. Of none (0) it promises no more than
        // that free blocks are joined with their neighbours. Here they are joined once their page has no other.
        M_MXFAST => (0..=MAX_FAST).contains(&value),
        // Free memory beyond this much is released by itself; so is what is below. Keeping it (-1) is not possible.
        M_TRIM_THRESHOLD => value >= 0,
        // Nothing is added to what is asked of the system.
        M_TOP_PAD => value == 0,
        // A wrong free is named and ends the process.
        M_CHECK_ACTION => value & CHECK_AND_ABORT == CHECK_AND_ABORT,
        // Blocks are not filled.
        M_PERTURB => value == 0,
        // There are no arenas that threads could multiply.
        M_ARENA_TEST | M_ARENA_MAX => true,
        // M_MMAP_THRESHOLD (-3) and M_MMAP_MAX (-4): blocks of more than 4 MiB are mapped on their own, however many,
        // and no others. And what is unknown, where glibc answers 1.
        _ => false,
    };
    c_int::from(holds)
}
