//! `weir.h`'s object caches. The header is the documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EBUSY, EINVAL, ENOMEM, fail, refuse};
use crate::misuse::{WrongCall, misuse};
use crate::weir_h::cache_callback::call;
use crate::weir_h::handle::{Handle, Home, Named, named, retire};
use crate::weir_h::object_mark::Mark;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};
use weir_core::caches::geometry::MAX_OBJECT;
use weir_core::caches::user_cache::{self, CacheId, Flags, LimitError, MakeError, Spec};
use weir_linux::os::catch::uncancelled;
use weir_linux::process::heap::{HEAP, make_cache, set_cache_move};

/// `weir_cache_init`.
pub type Init = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
/// `weir_cache_fini`.
pub type Fini = unsafe extern "C" fn(*mut c_void, usize);
/// `weir_cache_ctor`.
pub type Ctor = unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int;
/// `weir_cache_dtor`.
pub type Dtor = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// `weir_cache_move`.
pub type Move = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int;

const ZERO: c_uint = 1;
const NO_RECLAIM: c_uint = 2;
const LIMITED: c_uint = 4;
const NO_MERGE: c_uint = 8;

/// Set once the program has made a cache; until then no block can be an object of one.
static MADE: AtomicBool = AtomicBool::new(false);

/// `weir_cache`.
pub struct Cache {
    pub id: CacheId,
    /// Something is to be done to an object that is handed out ([`prepare`]); that is freed ([`finish`]). In one flag
    /// each, so that plain caches pay a test for it.
    prepares: bool,
    finishes: bool,
    mark: Mark,
    /// The objects' size, as the program gave it.
    size: usize,
    zero: bool,
    ctor: Option<Ctor>,
    dtor: Option<Dtor>,
    init: Option<Init>,
    fini: Option<Fini>,
    /// A [`Move`], null for none, and its argument: set once.
    moves: AtomicPtr<()>,
    move_argument: AtomicPtr<c_void>,
}

impl Named for Cache {
    const KIND: usize = 0x7765_6972_0063_6163;
    /// The lower half: an instruction less than the whole.
    const LOOKED_AT: usize = u32::MAX as usize;
    const WRONG: WrongCall = WrongCall::NoCache;
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the C function has them")]
pub unsafe extern "C" fn weir_cache_create(
    name: *const c_char,
    size: usize,
    align: usize,
    ctor: Option<Ctor>,
    dtor: Option<Dtor>,
    init: Option<Init>,
    fini: Option<Fini>,
    flags: c_uint,
) -> *mut Handle<Cache> {
    if flags & !(ZERO | NO_RECLAIM | LIMITED | NO_MERGE) != 0 {
        return fail(EINVAL).cast();
    }
    let Some(home) = Home::<Handle<Cache>>::new() else { return fail(ENOMEM).cast() };
    let (limited, zero) = (flags & LIMITED != 0, flags & ZERO != 0);
    let marked = limited || dtor.is_some();
    let mark = if marked { Mark::behind(size, align, MAX_OBJECT) } else { Mark::NONE };
    // SAFETY: the caller's promise: null, or a string.
    let name = if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
    let spec = Spec {
        name,
        size: mark.object_size(size),
        align: align.max(1),
        // The engine would zero the mark before it was looked at.
        flags: Flags {
            zero: zero && !mark.is_there(),
            no_reclaim: flags & NO_RECLAIM != 0,
            no_merge: flags & NO_MERGE != 0,
        },
        init: init.map(|_| init_object as user_cache::Init),
        fini: fini.map(|_| fini_object as user_cache::Fini),
        data: home.as_ptr().cast(),
        limit: if limited { user_cache::COUNTED } else { usize::MAX },
    };
    match make_cache(&spec) {
        Ok(id) => {
            let zero = zero && mark.is_there();
            let (prepares, finishes) = (ctor.is_some() || mark.is_there(), dtor.is_some() || mark.is_there());
            let (moves, move_argument) = (AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut()));
            MADE.store(true, Relaxed);
            // Nothing was allocated from the cache yet, so no callback has read it.
            home.hand_out(Cache {
                id,
                prepares,
                finishes,
                mark,
                size,
                zero,
                ctor,
                dtor,
                init,
                fini,
                moves,
                move_argument,
            })
        }
        Err(MakeError::NoMemory) => fail(ENOMEM).cast(),
        Err(_) => fail(EINVAL).cast(),
    }
}

unsafe extern "C-unwind" fn init_object(object: *mut u8, _rounded: usize, cache: *mut u8) -> bool {
    // SAFETY: `weir_cache_create` passed its cache, which outlives its objects; the function is the program's.
    unsafe {
        let cache = &(*cache.cast::<Handle<Cache>>()).value;
        cache.init.is_none_or(|init| {
            uncancelled(|| call((cache.id, "init"), init as usize, object, cache.size, null_mut())) == 0
        })
    }
}

unsafe extern "C" fn fini_object(object: *mut u8, _rounded: usize, cache: *mut u8) {
    // SAFETY: `weir_cache_create` passed its cache, which outlives its objects; the object is free, and the engine's alone.
    unsafe {
        let cache = &(*cache.cast::<Handle<Cache>>()).value;
        cache.mark.check_free(object);
        if let Some(fini) = cache.fini {
            uncancelled(|| call((cache.id, "fini"), fini as usize, object, cache.size, null_mut()));
        }
    }
}

unsafe extern "C" fn move_object(from: *mut u8, to: *mut u8, _rounded: usize, cache: *mut u8) -> bool {
    // SAFETY: `weir_cache_set_move` passed its cache, which outlives its objects, and stored the function before, which is
    // the program's. `to` is this thread's alone until the function says yes, and `from` from then on.
    unsafe {
        let cache = &(*cache.cast::<Handle<Cache>>()).value;
        let function = core::mem::transmute::<*mut (), Move>(cache.moves.load(Relaxed));
        cache.mark.check_free(to);
        // The program may free it before this function returns.
        cache.mark.hold(to);
        let moved = function(from.cast(), to.cast(), cache.size, cache.move_argument.load(Relaxed)) != 0;
        cache.mark.give_up(if moved { from } else { to });
        moved
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_destroy(cache: *mut Handle<Cache>) -> c_int {
    if cache.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise: a cache.
    let Some(found) = (unsafe { named(cache) }) else { return refuse(EINVAL) };
    // SAFETY: the caller's promise: no thread uses the cache.
    unsafe {
        if HEAP.destroy_cache(found.id).is_err() {
            return refuse(EBUSY);
        }
        retire(cache);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_alloc(cache: *mut Handle<Cache>) -> *mut u8 {
    // SAFETY: the caller's promise: a cache, or null.
    unsafe { alloc(cache, null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_alloc_arg(cache: *mut Handle<Cache>, argument: *mut c_void) -> *mut u8 {
    // SAFETY: the caller's promise: a cache, or null.
    unsafe { alloc(cache, argument) }
}

#[inline(always)]
unsafe fn alloc(cache: *mut Handle<Cache>, argument: *mut c_void) -> *mut u8 {
    // SAFETY: the caller's promise: a cache, or null.
    let Some(cache) = (unsafe { named(cache) }) else { return fail(EINVAL) };
    let object = HEAP.cache_alloc(cache.id);
    if object.is_null() {
        return fail(ENOMEM);
    }
    // SAFETY: the object is this caller's alone.
    if cache.prepares && !unsafe { prepare(cache, object, argument) } {
        return fail(ENOMEM);
    }
    object
}

impl Cache {
    /// Whether an object that the program passes may be one of this cache: it, and its mark, are in the cache's slabs.
    fn may_hold(&self, object: *mut u8) -> bool {
        let is_of_it = |addr| HEAP.cache_at(addr) == Some(self.id);
        let held = is_of_it(object.addr()) && is_of_it(self.mark.last_byte(object));
        if !held {
            misuse(WrongCall::OtherCache, object.addr());
        }
        held
    }
}

/// Looks at the mark of an object that is to be handed out, zeroes it and calls `ctor`; an object that `ctor` refuses
/// goes back.
unsafe fn prepare(cache: &Cache, object: *mut u8, argument: *mut c_void) -> bool {
    // SAFETY: the function is the program's; the object is the caller's.
    unsafe {
        cache.mark.check_free(object);
        if cache.zero {
            object.write_bytes(0, cache.size);
        }
        let made =
            cache.ctor.is_none_or(|ctor| call((cache.id, "ctor"), ctor as usize, object, cache.size, argument) == 0);
        if made {
            cache.mark.hold(object);
        } else {
            HEAP.note_cache_refusal(cache.id);
            HEAP.cache_free(cache.id, object);
        }
        made
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_free(cache: *mut Handle<Cache>, object: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { free(cache, object, null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_free_arg(cache: *mut Handle<Cache>, object: *mut u8, argument: *mut c_void) {
    // SAFETY: as the caller promises.
    unsafe { free(cache, object, argument) }
}

#[inline(always)]
unsafe fn free(cache: *mut Handle<Cache>, object: *mut u8, argument: *mut c_void) {
    if object.is_null() {
        return;
    }
    if cache.is_null() {
        return misuse(WrongCall::NullCache, object.addr());
    }
    // SAFETY: the caller's promise: a cache.
    let Some(cache) = (unsafe { named(cache) }) else { return };
    // SAFETY: the caller's promise: an object of the cache that is not used any more.
    unsafe {
        if cache.finishes && !finish(cache, object, argument) {
            return;
        }
        HEAP.cache_free(cache.id, object);
    }
}

/// Ends the use of an object: it must be one that the program holds, and then its `dtor` is called.
unsafe fn finish(cache: &Cache, object: *mut u8, argument: *mut c_void) -> bool {
    // SAFETY: where the object and its mark are in the cache's slabs, the mark can be read. The function is the
    // program's, and so is the object until it is freed.
    unsafe {
        if !cache.may_hold(object) || !cache.mark.give_up(object) {
            return false;
        }
        if let Some(dtor) = cache.dtor {
            call((cache.id, "dtor"), dtor as usize, object, cache.size, argument);
        }
    }
    true
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_alloc_batch(
    cache: *mut Handle<Cache>,
    objects: *mut *mut u8,
    count: usize,
) -> usize {
    if count == 0 {
        return 0;
    }
    // SAFETY: the caller's promise: a cache, or null.
    let Some(cache) = (unsafe { named(cache) }).filter(|_| !objects.is_null()) else {
        fail(EINVAL);
        return 0;
    };
    // SAFETY: the caller's promise: room for so many.
    let out = unsafe { core::slice::from_raw_parts_mut(objects, count) };
    let mut got = HEAP.cache_alloc_batch(cache.id, out);
    if cache.prepares {
        let mut made = 0;
        for i in 0..got {
            // SAFETY: the object is this caller's alone.
            if unsafe { prepare(cache, out[i], null_mut()) } {
                out[made] = out[i];
                made += 1;
            }
        }
        got = made;
    }
    if got < count {
        fail(ENOMEM);
    }
    got
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_free_batch(cache: *mut Handle<Cache>, objects: *const *mut u8, count: usize) {
    /// Objects that are freed at a time, after their use was ended.
    const CHUNK: usize = 64;
    if count == 0 {
        return;
    }
    if cache.is_null() {
        return misuse(WrongCall::NullCache, objects.addr());
    }
    // SAFETY: the caller's promise: a cache.
    let Some(found) = (unsafe { named(cache) }) else { return };
    if objects.is_null() {
        return misuse(WrongCall::NullObjects, cache.addr());
    }
    // SAFETY: the caller's promise: so many.
    let objects = unsafe { core::slice::from_raw_parts(objects, count) };
    if let Some(null) = objects.iter().find(|object| object.is_null()) {
        return misuse(WrongCall::NullObject, core::ptr::from_ref(null).addr());
    }
    if !found.finishes {
        // SAFETY: the caller's promise: objects of the cache that are not used any more.
        return unsafe { HEAP.cache_free_batch(found.id, objects) };
    }
    for objects in objects.chunks(CHUNK) {
        let (mut back, mut n) = ([null_mut(); CHUNK], 0);
        for &object in objects {
            // SAFETY: the caller's promise: an object of the cache that is not used any more.
            if unsafe { finish(found, object, null_mut()) } {
                back[n] = object;
                n += 1;
            }
        }
        // SAFETY: objects of the cache, and their use has ended.
        unsafe { HEAP.cache_free_batch(found.id, &back[..n]) };
    }
}

/// Whether `block` is an object of a cache of the program's: those are not malloc's to resize.
#[inline]
pub fn is_object(block: *mut u8) -> bool {
    MADE.load(Relaxed) && HEAP.cache_at(block.addr()).is_some()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_set_limit(cache: *mut Handle<Cache>, objects: usize) -> c_int {
    // SAFETY: the caller's promise: a cache, or null.
    match unsafe { named(cache) } {
        Some(cache) => answer(HEAP.set_cache_limit(cache.id, objects)),
        None => refuse(EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_set_move(
    cache: *mut Handle<Cache>,
    function: Option<Move>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise: a cache, or null.
    let (Some(found), Some(function)) = (unsafe { named(cache) }, function) else { return refuse(EINVAL) };
    let is_first = || found.moves.compare_exchange(null_mut(), function as *mut (), Relaxed, Relaxed).is_ok();
    if found.init.is_some() || found.fini.is_some() || !is_first() {
        return refuse(EINVAL);
    }
    found.move_argument.store(argument, Relaxed);
    // SAFETY: the cache outlives its objects; the program answers for its function. The engine has none yet.
    let is_set = unsafe { set_cache_move(found.id, move_object, cache.cast()) };
    debug_assert!(is_set, "one without init and fini, and this is the first");
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_set_reserve(cache: *mut Handle<Cache>, objects: usize) -> c_int {
    // SAFETY: the caller's promise: a cache, or null.
    match unsafe { named(cache) } {
        Some(cache) => answer(HEAP.set_cache_reserve(cache.id, objects)),
        None => refuse(EINVAL),
    }
}

fn answer(result: Result<(), LimitError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(LimitError::NoMemory) => refuse(ENOMEM),
        Err(_) => refuse(EINVAL),
    }
}
