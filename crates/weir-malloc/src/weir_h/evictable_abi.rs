//! `weir.h`'s evictable caches. The header is the documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EBUSY, EFBIG, EINVAL, ENOENT, ENOMEM, ENOSPC, fail, refuse};
use crate::misuse::WrongCall;
use crate::weir_h::cache_callback;
use crate::weir_h::handle::{Handle, Home, Named, end, named};
use crate::weir_h::structs::{read, tell};
use crate::weir_h::zone_abi;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{NonNull, null};
use core::time::Duration;
use weir::{ByteCache, ByteEntry, CacheError, Favour, Refusal, RemovalCause};

/// `weir_evictable`.
pub type Cache = Handle<ByteCache>;

impl Named for ByteCache {
    const KIND: usize = 0x7765_6972_6576_6963;
    const WRONG: WrongCall = WrongCall::NoEvictable;
}

type OnEvict = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize, *const c_void, usize, c_uint);

/// `struct weir_evictable_options`. A caller's may be shorter: what it lacks is zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    name: *const c_char,
    max_bytes: usize,
    min_bytes: usize,
    shards: usize,
    zone: *mut Handle<zone_abi::Zone>,
    on_evict: Option<OnEvict>,
    data: *mut c_void,
    flags: c_uint,
    miss_ns: u64,
}

// A program that was compiled before ends here.
const _: () = assert!(core::mem::offset_of!(Options, miss_ns) == 64);

/// `WEIR_EVICTABLE_ZONE_FIRST`.
const ZONE_FIRST: c_uint = 1;
/// `WEIR_EVICTABLE_FAVOUR_BYTES`.
const FAVOUR_BYTES: c_uint = 2;

/// The program's pointer for its callback.
#[derive(Clone, Copy)]
struct Data(*mut c_void);

// SAFETY: it is handed to the program's function alone, which may be called on any thread, as the header says.
unsafe impl Send for Data {}
// SAFETY: nothing here reads or writes through it.
unsafe impl Sync for Data {}

impl Data {
    fn get(self) -> *mut c_void {
        self.0
    }
}

fn errno_of(why: Refusal) -> c_int {
    match why {
        Refusal::TooLarge { .. } => EFBIG,
        Refusal::OutOfMemory => ENOMEM,
        _ => ENOSPC,
    }
}

fn number_of(cause: RemovalCause) -> c_uint {
    match cause {
        RemovalCause::Room => 0,
        RemovalCause::Pressure => 1,
        RemovalCause::Removed => 2,
        RemovalCause::Replaced => 3,
        _ => 4,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_create(options: *const Options, size: usize) -> *mut Cache {
    // SAFETY: the caller's promise: null, or `size` bytes that may be read. Zeros are null pointers, no functions and numbers.
    let options = unsafe { read(options, size) };
    let is_first = options.flags & ZONE_FIRST != 0;
    if options.flags & !(ZONE_FIRST | FAVOUR_BYTES) != 0 || is_first && options.zone.is_null() {
        return fail(EINVAL).cast();
    }
    let mut builder = ByteCache::builder().min_bytes(options.min_bytes).shards(options.shards);
    if !options.name.is_null() {
        // SAFETY: the caller's C string.
        let name = unsafe { CStr::from_ptr(options.name) }.to_bytes();
        // As far as it is text. The builder cuts it between two characters.
        builder = builder.name(name.utf8_chunks().next().map_or("", |chunk| chunk.valid()));
    }
    builder = builder.miss_time(Duration::from_nanos(options.miss_ns));
    if options.flags & FAVOUR_BYTES != 0 {
        builder = builder.favour(Favour::Bytes);
    }
    if options.max_bytes > 0 {
        builder = builder.max_bytes(options.max_bytes);
    }
    if !options.zone.is_null() {
        // SAFETY: the caller's zone, which lives longer than the cache, as the header demands.
        let Some(zone) = (unsafe { zone_abi::borrowed(options.zone) }) else { return fail(EINVAL).cast() };
        builder = if is_first { builder.zone_first(zone) } else { builder.zone(zone) };
    }
    let data = Data(options.data);
    if let Some(on_evict) = options.on_evict {
        builder = builder.on_evict(move |key, value, cause| {
            let (key, value) = ((key.as_ptr().addr(), key.len()), (value.as_ptr().addr(), value.len()));
            let arguments = [data.get().addr(), key.0, key.1, value.0, value.1, number_of(cause) as usize];
            // SAFETY: the program's function, with what it is to be called with.
            unsafe { cache_callback::call_on_evict(on_evict as usize, arguments) }
        });
    }
    match (Home::new(), builder.build()) {
        (Some(home), Ok(cache)) => home.hand_out(cache),
        (_, Err(CacheError::Shards { .. })) => fail(EINVAL).cast(),
        _ => fail(ENOMEM).cast(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_destroy(cache: *mut Cache) -> c_int {
    if cache.is_null() {
        return 0;
    }
    // SAFETY: the caller's cache.
    let Some(found) = (unsafe { named(cache) }) else { return refuse(EINVAL) };
    if found.is_in_use() {
        return refuse(EBUSY);
    }
    // SAFETY: created by `weir_evictable_create`, given up by the caller, and nothing of it is in use.
    unsafe { end(cache) };
    0
}

/// A key of the caller's.
///
/// # Safety
/// `size` readable bytes, or null with a size of 0.
unsafe fn bytes<'a>(at: *const c_void, size: usize) -> Option<&'a [u8]> {
    if at.is_null() {
        return (size == 0).then_some(&[]);
    }
    // SAFETY: the caller's promise.
    (size <= isize::MAX as usize).then(|| unsafe { core::slice::from_raw_parts(at.cast(), size) })
}

/// A cache and a key, where both are there.
///
/// # Safety
/// As [`named`] and [`bytes`].
unsafe fn both<'a>(cache: *mut Cache, key: *const c_void, size: usize) -> Option<(&'a ByteCache, &'a [u8])> {
    // SAFETY: the caller's promises.
    unsafe { named(cache).zip(bytes(key, size)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_get(cache: *mut Cache, key: *const c_void, key_size: usize) -> *mut c_void {
    // SAFETY: the caller's cache and key.
    let Some((cache, key)) = (unsafe { both(cache, key, key_size) }) else { return fail(EINVAL).cast() };
    match cache.get(key) {
        Some(entry) => entry.into_raw().as_ptr().cast(),
        None => fail(ENOENT).cast(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_prepare(
    cache: *mut Cache,
    key: *const c_void,
    key_size: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller's cache and key.
    let Some((cache, key)) = (unsafe { both(cache, key, key_size) }) else { return fail(EINVAL).cast() };
    match cache.fill(key, size) {
        Ok(entry) => entry.into_raw().as_ptr().cast(),
        Err(why) => fail(errno_of(why)).cast(),
    }
}

/// A cache and an entry of it, where both are there.
///
/// # Safety
/// Null, or a cache and an entry of it that the caller has.
unsafe fn pair<'a>(cache: *mut Cache, entry: *mut c_void) -> Option<(&'a ByteCache, NonNull<u8>)> {
    // SAFETY: the caller's cache.
    unsafe { named(cache) }.zip(NonNull::new(entry.cast()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_publish(cache: *mut Cache, entry: *mut c_void) -> c_int {
    // SAFETY: the caller's cache, and an entry that `weir_evictable_prepare` gave.
    let Some((cache, entry)) = (unsafe { pair(cache, entry) }) else { return refuse(EINVAL) };
    // SAFETY: from `weir_evictable_prepare`, and given up by this; where it is refused it is the caller's again.
    match unsafe { cache.fill_from_raw(entry) }.publish() {
        // The same address: the guard is the caller's.
        Ok(entry) => {
            entry.into_raw();
            0
        }
        Err((fill, why)) => {
            fill.into_raw();
            refuse(errno_of(why))
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_cancel(cache: *mut Cache, entry: *mut c_void) {
    // SAFETY: the caller's cache, and an entry that `weir_evictable_prepare` gave, or null.
    if let Some((cache, entry)) = unsafe { pair(cache, entry) } {
        // SAFETY: from `weir_evictable_prepare`, and given up by the caller.
        drop(unsafe { cache.fill_from_raw(entry) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_release(cache: *mut Cache, entry: *mut c_void) {
    // SAFETY: the caller's cache, and an entry that it pins, or null.
    if let Some((cache, entry)) = unsafe { pair(cache, entry) } {
        // SAFETY: a pin of the caller's, given up.
        drop(unsafe { cache.entry_from_raw(entry) });
    }
}

/// An entry that the caller has, not ended when the value returned is dropped.
///
/// # Safety
/// Null, or a cache and an entry of it that the caller has.
unsafe fn looked_at<'a>(cache: *mut Cache, entry: *mut c_void) -> Option<ManuallyDrop<ByteEntry<'a>>> {
    // SAFETY: the caller's promise.
    let (cache, entry) = unsafe { pair(cache, entry) }?;
    // SAFETY: the caller has it; as it is not dropped, nothing is given up. All kinds of entries are alike in memory.
    Some(ManuallyDrop::new(unsafe { cache.entry_from_raw(entry) }))
}

/// Says a size, where it is wanted.
///
/// # Safety
/// Null, or writable.
unsafe fn say(out: *mut usize, size: usize) {
    // SAFETY: the caller's promise.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = size;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_key(cache: *mut Cache, entry: *mut c_void, size: *mut usize) -> *const c_void {
    // SAFETY: the caller's cache and entry.
    let Some(found) = (unsafe { looked_at(cache, entry) }) else {
        fail(EINVAL);
        return null();
    };
    // SAFETY: the caller's place for the size.
    unsafe { say(size, found.key().len()) };
    found.key().as_ptr().cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_value(cache: *mut Cache, entry: *mut c_void, size: *mut usize) -> *mut c_void {
    // SAFETY: the caller's cache and entry.
    let Some(found) = (unsafe { looked_at(cache, entry) }) else { return fail(EINVAL).cast() };
    // SAFETY: the caller's place for the size.
    unsafe { say(size, found.len()) };
    found.as_ptr().as_ptr().cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_remove(cache: *mut Cache, key: *const c_void, key_size: usize) -> c_int {
    // SAFETY: the caller's cache and key.
    let Some((cache, key)) = (unsafe { both(cache, key, key_size) }) else { return refuse(EINVAL) };
    if cache.remove(key) { 0 } else { refuse(ENOENT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_clear(cache: *mut Cache) -> c_int {
    // SAFETY: the caller's cache.
    let Some(cache) = (unsafe { named(cache) }) else { return refuse(EINVAL) };
    cache.clear();
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_evict(cache: *mut Cache, bytes: usize) -> usize {
    // SAFETY: the caller's cache.
    unsafe { named(cache) }.map_or(0, |cache| cache.evict(bytes))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_relieved(cache: *mut Cache) {
    // SAFETY: the caller's cache.
    if let Some(cache) = unsafe { named(cache) } {
        cache.relieved();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_set_max(cache: *mut Cache, bytes: usize) -> c_int {
    // SAFETY: the caller's cache.
    let Some(cache) = (unsafe { named(cache) }) else { return refuse(EINVAL) };
    cache.set_max_bytes(if bytes == 0 { usize::MAX } else { bytes });
    0
}

/// `struct weir_evictable_stats`.
#[repr(C)]
pub struct Stats {
    counts: [u64; 8],
    sizes: [usize; 6],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_evictable_stats(cache: *mut Cache, out: *mut Stats, size: usize) -> c_int {
    // SAFETY: the caller's cache.
    let stats = unsafe { named(cache) }.map(ByteCache::stats);
    let answer = stats.map(|stats| Stats {
        counts: [
            stats.hits,
            stats.misses,
            stats.insertions,
            stats.evicted_for_room,
            stats.evicted_for_pressure,
            stats.removed,
            stats.replaced,
            stats.rejected,
        ],
        sizes: [stats.bytes, stats.entries, stats.target_bytes, stats.max_bytes, stats.pinned, stats.metadata_bytes],
    });
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { tell(out, size, answer) }
}
